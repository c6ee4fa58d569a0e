"""Database URLs: which are taken, what the drivers get, and that passwords stay inside."""

import traceback

import pytest

from app.cluster.metadata.database.address import BadDatabaseUrl, DatabaseAddress
from app.cluster.metadata.database.config import ClusterConfig


@pytest.mark.parametrize(
    "scheme", ["postgres", "postgresql", "postgresql+psycopg"], ids=["short", "plain", "driver"]
)
def test_postgres_urls_mean_psycopg(scheme: str) -> None:
    address = DatabaseAddress.parse(f"{scheme}://anna:pw@db.example:6543/mq?sslmode=require")
    for url in (address.sync_url, address.async_url):
        assert url.render_as_string(hide_password=False) == (
            "postgresql+psycopg://anna:pw@db.example:6543/mq?sslmode=require"
        )
    assert address.sqlite_file is None


@pytest.mark.parametrize(
    ("url", "path"), [("sqlite:///data/m.db", "data/m.db"), ("sqlite:////var/m.db", "/var/m.db")]
)
def test_sqlite_urls_name_a_file(url: str, path: str) -> None:
    address = DatabaseAddress.parse(url)
    assert str(address.sqlite_file) == path
    assert str(address.sync_url) == f"sqlite+pysqlite:///{path}"
    assert str(address.async_url) == f"sqlite+aiosqlite:///{path}"
    assert address.shown == f"SQLite file {path}"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:pw@db:1/n", "PostgreSQL at db:1, database 'n'"),
        ("postgresql://db/n", "PostgreSQL at db:5432, database 'n'"),
        ("postgresql:///n?host=/run/pg&password=pw", "PostgreSQL at /run/pg:5432, database 'n'"),
    ],
)
def test_what_is_shown_has_host_and_port_and_no_password(url: str, shown: str) -> None:
    assert DatabaseAddress.parse(url).shown == shown


@pytest.mark.parametrize(
    "url",
    [
        "mysql://root:topsecret@db/n",
        "postgresql+asyncpg://root:topsecret@db/n",
        "postgresql://root:topsecret@db:port/n",
        "topsecret",
        "",
        "sqlite://",
        "sqlite:///:memory:",
    ],
)
def test_refused_urls_are_explained_and_never_quoted(url: str) -> None:
    with pytest.raises(BadDatabaseUrl) as caught:
        DatabaseAddress.parse(url)
    assert "sqlite:///" in str(caught.value.hint)
    assert not caught.value.retryable
    shown = "".join(traceback.format_exception(caught.value)).replace(repr(url), "")
    assert "topsecret" not in shown


def test_passwords_are_blotted_out_of_driver_messages() -> None:
    address = DatabaseAddress.parse("postgresql://u:topsecret@db/n?password=other")
    assert address.without_secrets("no topsecret, no other") == "no ***, no ***"


def test_representations_hold_no_password() -> None:
    url = "postgresql://u:topsecret@db/n"
    assert "topsecret" not in repr(ClusterConfig(url))
    assert "topsecret" not in repr(DatabaseAddress.parse(url))
