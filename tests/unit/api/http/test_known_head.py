"""A request with a head that is known is what the parser makes of it."""

import asyncio
from typing import Any, cast

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override
from uvicorn._types import HTTPScope
from uvicorn.server import ServerState

from app.api.http.known_head import KnownHead, KnownHeads
from app.api.http.request_context import BODY_IN_PLACE, CONNECTION, HEAD, Receive, Scope, Send
from app.api.server.connections import Connections
from app.api.server.protocol import HttpProtocol, guarded
from app.domain.limits import Limits


def request(*lines: bytes, body: bytes = b"", start: bytes = b"POST /a?b=c HTTP/1.1") -> bytes:
    return b"\r\n".join([start, b"Host: localhost", *lines, b"", body])


def of_length(body: bytes, *lines: bytes, name: bytes = b"Content-Length") -> bytes:
    return request(b"X-One: 1", b"%b: %d" % (name, len(body)), *lines, body=body)


def carried(body: bytes, client: bytes = b"10.0.0.1 5", request_id: bytes = b"a-1") -> bytes:
    """As another node writes it for a client."""
    late = b"curlew-client: " + client, b"mq-request-id: " + request_id
    return request(b"X-One: 1", *late, b"content-length: %d" % len(body), body=body)


PLAIN = of_length(b"body")
CARRIED = carried(b"body")
KNOWABLE = [
    PLAIN,
    of_length(b"other"),
    of_length(b"0123456789ab"),
    of_length(b""),
    of_length(b"\r\n\r\nx\r\n\r\n"),
    of_length(PLAIN),
    of_length(b"body", b"MQ-Tag: a"),
    of_length(b"bodies", b"MQ-Tag: a"),
    of_length(b"body", b"Connection: Keep-Alive", name=b"content-length"),
    request(b"Content-Length:004", body=b"body"),
    request(b"X-Length: 3", b"Content-Length: 4", b"Y: content-length: 9", body=b"body"),
    request(start=b"GET /a%20b HTTP/1.1"),
    request(start=b"HEAD /a HTTP/1.1"),
    CARRIED,
    carried(CARRIED, b"fe80::1%eth0 65535", b"of-the_client:1/=+."),
    carried(b"", request_id=b"x" * 128),
]
OTHERS = [
    b"\r\n" + PLAIN,
    of_length(b"body", b"Connection: close"),
    of_length(b"body", b"Expect: 100-continue"),
    of_length(b"body", b"Connection: keep-alive, upgrade", b"Upgrade: h2c"),
    request(b"Transfer-Encoding: chunked", body=b"3\r\nabc\r\n0\r\nX-One: 1\r\n\r\n"),
    request(b"Content-Length: 4", body=b"body", start=b"POST /a HTTP/1.0"),
    request(b"Content-Length: 4", b"Content-Length: 4", body=b"body"),
    request(b"Content-Length: 4 ", body=b"body"),
    request(b"Content-Length: +4", body=b"body"),
    request(b"Content-Length: 4x", body=b"body"),
    request(b"Content-Length : 4", body=b"body"),
    request(b"Content-Length: 4", b"Transfer-Encoding: chunked", body=b"body"),
    request(b"Content-Length: 4", b"Host: other", body=b"body"),
    PLAIN + b"\r\n",
    PLAIN + PLAIN,
    PLAIN[:-1],
    PLAIN[: PLAIN.index(b"body")],
    PLAIN.replace(b"X-One: 1", b"X-One: 1\n"),
    PLAIN.replace(b"\r\n", b"\n"),
    request(start=b"CONNECT localhost:1 HTTP/1.1"),
    b"GET",
]


_OF_THE_CONNECTION = {CONNECTION, BODY_IN_PLACE, HEAD}


class Wire:
    """A transport that leads nowhere."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))

    def get_extra_info(self, name: str, default: object = None) -> object:
        return {"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)}.get(name, default)

    def is_closing(self) -> bool:
        return self.is_closed

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.is_closed = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Unlearning(KnownHeads):
    """Every request goes to the parser."""

    @override
    def learn(self, data: bytes, scope: HTTPScope) -> None: ...


class Counting(KnownHeads):
    """Counts what does not go there."""

    taken = 0

    @override
    def find(self, data: bytes) -> tuple[HTTPScope, bytes] | None:
        found = super().find(data)
        self.taken += found is not None
        return found


async def served(reads: list[bytes], known: KnownHeads) -> list[object]:
    """What an application is asked on a connection, and what goes out on it."""
    seen: list[object] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        event = await receive()
        body = event.get("body", b"")
        while event.get("more_body"):
            event = await receive()
            body += event.get("body", b"")
        asked = {name: scope[name] for name in scope if name not in _OF_THE_CONNECTION}
        seen.append((asked, body, event["type"]))
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})

    config = uvicorn.Config(
        cast("Any", app), http=cast("Any", guarded(Connections(Limits()))), lifespan="off"
    )
    config.load()
    kind = cast("type[HttpProtocol]", config.http_protocol_class)
    server = kind(config, ServerState(), {})
    server._known = known
    wire = Wire()
    server.connection_made(cast("asyncio.Transport", wire))
    for data in reads:
        if wire.is_closed:
            break
        server.data_received(data)
        for _ in range(4):  # what has become a task comes to its end
            await asyncio.sleep(0)
    # Of refusals, which have ids of their own, the status only.
    seen += [each.partition(b"\r\n")[0] if b"guard-" in each else each for each in wire.written]
    server.connection_lost(None)
    return [*seen, wire.is_closed]


def compared(reads: list[bytes]) -> int:
    """How many requests the parser did not see; they were what it would have made of them."""
    counting = Counting()
    plain = asyncio.run(served(reads, Unlearning()))
    assert asyncio.run(served(reads, counting)) == plain
    return counting.taken


@pytest.mark.parametrize("data", KNOWABLE, ids=range(len(KNOWABLE)))
def test_the_second_of_two_equal_requests_is_known(data: bytes) -> None:
    assert compared([data, data, data]) == 2


@pytest.mark.parametrize("data", OTHERS, ids=range(len(OTHERS)))
def test_what_does_not_end_with_its_body_or_says_more_is_not_known(data: bytes) -> None:
    assert compared([data, data, data]) == 0


def test_another_length_is_known_and_another_header_is_not() -> None:
    assert compared([PLAIN, of_length(b"longer"), of_length(b"x" * 1_000), PLAIN]) == 3
    assert compared([PLAIN, of_length(b"body", b"MQ-Tag: a")]) == 0


def test_carried_requests_of_clients_that_say_the_same_are_known() -> None:
    others = [carried(b"x" * 9, b"10.0.0.2 7"), carried(b"", request_id=b"b-77"), CARRIED]
    assert compared([CARRIED, *others]) == 3


@pytest.mark.parametrize(
    "other",
    [
        carried(b"body", b"10.0.0.1"),
        carried(b"body", b"10.0.0.1 5 6"),
        carried(b"body", b"10.0.0.1 123456"),
        carried(b"body", b"10.0.0.1\t5"),
        carried(b"body", b"10.0.0.1 5\r\nX-Two: 2"),
        carried(b"body", request_id=b"a b"),
        carried(b"body", request_id=b""),
        carried(b"body", request_id=b"x" * 129),
        carried(b"body", request_id=b"a\r\ncontent-length: 4"),
        carried(b"body")[:-1],
        carried(b"body") + b"x",
    ],
)
def test_carried_requests_with_other_values_are_parsed(other: bytes) -> None:
    assert compared([CARRIED, other]) == 0


def test_a_long_head_is_not_known() -> None:
    room = 4_096 - len(of_length(b"", b"X: "))
    assert compared([of_length(b"body", b"X: " + b"x" * room)] * 3) == 2
    assert compared([of_length(b"body", b"X: " + b"x" * (room + 1))] * 3) == 0


def test_a_head_of_many_headers_is_not_known() -> None:
    own = len(of_length(b"").split(b"\r\n")) - 3
    more = [b"%d: a" % number for number in range(65 - own)]
    assert compared([of_length(b"body", *more[1:])] * 3) == 2
    assert compared([of_length(b"body", *more)] * 3) == 0


def test_requests_of_four_kinds_are_known_beside_each_other() -> None:
    kinds = [of_length(b"body", b"MQ-Tag: %d" % number) for number in range(4)]
    assert compared(kinds * 3) == 8


@pytest.mark.parametrize("data", OTHERS, ids=range(len(OTHERS)))
def test_after_a_head_that_is_known_any_other_is_parsed(data: bytes) -> None:
    assert compared([PLAIN, PLAIN, data, PLAIN, PLAIN]) >= 1


def test_a_connection_with_ever_new_heads_learns_few() -> None:
    different = [of_length(b"body", b"MQ-Keys: %d" % number) for number in range(100)]
    known = Counting()
    asyncio.run(served(different, known))
    assert known._learnt == 11  # the first eight, and three of 92
    assert compared([*different, PLAIN]) == 0


def test_a_client_that_repeats_itself_again_is_known_again() -> None:
    different = [of_length(b"body", b"MQ-Keys: %d" % number) for number in range(100)]
    kinds = [of_length(b"body", b"MQ-Tag: %d" % number) for number in range(2)]
    assert compared([*different, *[kinds[0]] * 64]) >= 32
    assert compared([*different, *kinds * 64]) >= 96 - 32


def test_the_head_that_came_next_the_last_time_is_the_first_one_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kinds = [of_length(b"body", b"MQ-Tag: %d" % number) for number in range(4)]
    known = Counting()
    asyncio.run(served([*kinds, kinds[2], kinds[3], kinds[2]], known))
    looks: list[object] = []
    find = KnownHead.find

    def noted(head: KnownHead, data: bytes) -> tuple[HTTPScope, bytes] | None:
        looks.append(head)
        return find(head, data)

    monkeypatch.setattr(KnownHead, "find", noted)
    asyncio.run(served([kinds[3], kinds[2]] * 3, known))
    assert len(looks) == 6


_PIECES = st.sampled_from([*KNOWABLE, *OTHERS])


@given(st.lists(st.tuples(_PIECES, st.integers(0, 200), st.booleans()), max_size=6))
def test_any_requests_in_any_pieces_are_what_the_parser_makes_of_them(
    requests: list[tuple[bytes, int, bool]],
) -> None:
    reads = [PLAIN]
    for data, cut, is_with_the_one_before in requests:
        pieces = [piece for piece in (data[:cut], data[cut:]) if piece]
        if is_with_the_one_before:
            reads[-1] += pieces.pop(0)
        reads += pieces
    compared(reads)
