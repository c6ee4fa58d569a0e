"""What a node asks of its listening socket."""

import socket

import pytest

from app.config import Config
from app.main import bind


def congestion_control(connection: socket.socket) -> bytes:
    option = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return option.rstrip(b"\0")


@pytest.mark.parametrize(("host", "is_local"), [("127.0.0.1", True), ("0.0.0.0", False)])
def test_connections_within_the_machine_are_not_paced(host: str, is_local: bool) -> None:
    with socket.socket() as plain:
        usual = congestion_control(plain)
    with bind(Config(host=host, port=0)) as listener:
        listener.settimeout(5)
        with socket.create_connection(("127.0.0.1", listener.getsockname()[1]), 5):
            connection, _ = listener.accept()
            with connection:
                assert congestion_control(connection) == (b"reno" if is_local else usual)
