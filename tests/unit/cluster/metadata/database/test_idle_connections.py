"""A pooled connection that the driver has given up costs no request."""

import sqlite3

from sqlalchemy import QueuePool, create_engine

from app.cluster.metadata.database.database import _ask_those_that_may_be_closed


class GivenUp(sqlite3.Connection):
    """As one of psycopg is, once libpq has no socket."""

    def fileno(self) -> int:
        raise sqlite3.OperationalError("the connection is lost")


def test_a_connection_that_has_no_socket_any_more_is_made_anew() -> None:
    engine = create_engine("sqlite://", poolclass=QueuePool, connect_args={"factory": GivenUp})
    _ask_those_that_may_be_closed(engine)
    with engine.connect() as connection:
        first = connection.connection.driver_connection
    with engine.connect() as connection:
        assert connection.connection.driver_connection is not first
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1
    engine.dispose()
