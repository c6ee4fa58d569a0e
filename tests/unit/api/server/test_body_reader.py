"""The memory that a body is read to: how much there is of it, and when."""

from app.api.server.body_reader import FIRST_ROOM_BYTES, BodyReader
from app.domain.errors import BodyTooLarge

SIZE = 5 * FIRST_ROOM_BYTES + 3


class Watched:
    """Counts what it is told."""

    def __init__(self) -> None:
        self.grown = self.held = self.ended = 0

    def body_grew(self, size: int) -> None:
        self.grown += size

    def hold(self, size: int) -> None:
        self.held += size

    def body_ended(self) -> None:
        self.ended += 1

    def eof_received(self) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


def put(gathering: BodyReader, data: bytes) -> int:
    """One read of the transport; how much it took."""
    room = gathering.get_buffer(-1)
    taken = min(len(room), len(data))
    room[:taken] = data[:taken]
    gathering.buffer_updated(taken)
    return taken


def test_the_body_is_what_came_and_not_one_byte_more() -> None:
    body = bytes(range(251)) * (SIZE // 251 + 1)
    watched = Watched()
    gathering = BodyReader(watched, body[:10], SIZE, watched.hold)
    at = 10
    while at < SIZE:
        assert not gathering.is_whole
        assert watched.ended == 0
        at += put(gathering, body[at : at + 300_001])
    assert gathering.is_whole
    assert watched.ended == 1
    assert watched.grown == watched.held == SIZE - 10
    assert gathering.take() == body[:SIZE]


def test_there_is_room_for_what_came_and_as_much_again() -> None:
    watched = Watched()
    gathering = BodyReader(watched, b"x", SIZE, watched.hold)
    came = 1
    while not gathering.is_whole:
        room = len(gathering.get_buffer(-1))
        assert 0 < room <= max(FIRST_ROOM_BYTES, came)
        came += put(gathering, bytes(room))
    assert len(BodyReader(watched, b"x", 100, watched.hold).get_buffer(-1)) == 99


def test_what_was_taken_is_not_kept() -> None:
    """The transport holds on to the object for as long as the connection is open."""
    watched = Watched()
    gathering = BodyReader(watched, b"x", 100, watched.hold)
    put(gathering, bytes(99))
    assert len(gathering.take()) == 100
    assert len(gathering.take()) == 0


def test_what_is_refused_ends_it() -> None:
    watched = Watched()

    def refuse(_: int) -> None:
        raise BodyTooLarge("too much")

    gathering = BodyReader(watched, b"x", 100, refuse)
    put(gathering, bytes(10))
    assert isinstance(gathering.refusal, BodyTooLarge)
    assert watched.ended == 1
    assert not gathering.is_whole
