"""Frames whose records go from the log's files to the socket, over real sockets and both loops."""

import asyncio
import contextlib
import os
import socket
import threading
import zlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from typing_extensions import override

from app.api.server.file_sending import FileAnswers, FileSending
from app.domain.limits import KIB, MIB, Limits
from app.domain.message import Message
from app.store import FilePart, RecordsInPlace
from app.store.formats.frame.batch_frame import FLAG_CRC32, HEADER, HEADER_BYTES
from app.store.fs import files
from tests.support.clients.frames import request_frame
from tests.support.clients.wire import RawAnswer, RawConnection, Served, served_node
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio

LIMITS = Limits(
    batch_bytes_max=16 * MIB,
    pull_bytes_max=8 * MIB,
    request_body_ms_max=600_000,  # however long the machine stands still
    unread_answer_ms_max=600_000,
    linger_ms_max=200,  # the guard looks every 50 ms
)
COUNT = 520
"""Of 12 KiB: 6.1 MiB, more than any socket holds. Four large blocks, and eight messages."""
BODIES = [bytes((number % 251,)) * (12 * KIB) for number in range(COUNT)]
WHOLE = COUNT - COUNT % 128
PULL = "/v1/topics/orders/queues/0/messages?offset=0&max_messages=1000&max_bytes=8388608"


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": request.param}


class Sendings:
    """Notes which answers were sent from files, and how many calls that took."""

    def __init__(self) -> None:
        self.count = 0
        self.calls = 0
        self.in_threads = 0
        self.descriptors: set[int] = set()
        """Those of now, which the connections' transports know nothing of."""


@pytest.fixture
def sendings(monkeypatch: pytest.MonkeyPatch) -> Sendings:
    seen = Sendings()
    run, send = FileSending.run, FilePart.send

    async def noting_run(sending: FileSending, *place: Any) -> None:
        seen.count += 1
        await run(sending, *place)

    def noting_send(part: FilePart, target: int, done: int, *, wait_for_disk: bool) -> int:
        seen.calls += 1
        seen.in_threads += wait_for_disk
        return send(part, target, done, wait_for_disk=wait_for_disk)

    dup, close = os.dup, os.close

    def noting_dup(descriptor: int) -> int:
        second = dup(descriptor)
        seen.descriptors.add(second)
        return second

    def noting_close(descriptor: int) -> None:
        seen.descriptors.discard(descriptor)
        close(descriptor)

    monkeypatch.setattr(FileSending, "run", noting_run)
    monkeypatch.setattr(FilePart, "send", noting_send)
    monkeypatch.setattr(os, "dup", noting_dup)
    monkeypatch.setattr(os, "close", noting_close)
    return seen


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Served]:
    """With `COUNT` messages, which came in one frame."""
    async with served_node(tmp_path, LIMITS) as served:
        frame = request_frame([Message(body) for body in BODIES], "orders")
        head = b"POST /v1/topics/orders/messages:batch HTTP/1.1\r\nHost: localhost\r\n"
        head += b"Content-Type: application/vnd.curlew.batch\r\nContent-Length: %d\r\n\r\n"
        async with contextlib.aclosing(await served.connect()) as connection:
            await connection.say(head % len(frame) + frame)
            answer = await connection.answer()
            assert answer.status == 200, answer.body
        yield served


@pytest.fixture(autouse=True)
def _no_errors(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever happens to a connection, no task fails."""
    yield
    assert "Exception in ASGI application" not in caplog.text
    assert "without completing response" not in caplog.text
    assert "unexpected failure" not in caplog.text


def request(query: str = "&checksum=crc32", more: str = "", method: str = "GET") -> bytes:
    head = f"{method} {PULL}{query} HTTP/1.1\r\nHost: localhost\r\n"
    return f"{head}Accept: application/vnd.curlew.batch\r\n{more}\r\n".encode()


async def asked(server: Served, query: str = "&checksum=crc32", more: str = "") -> RawAnswer:
    async with contextlib.aclosing(await server.connect()) as connection:
        await connection.say(request(query, more))
        return await connection.answer()


def records_of(frame: bytes) -> bytes:
    """The records of a frame with CRC-32, which holds."""
    _, _, flags, _, count, checksum, _, size = HEADER.unpack_from(frame)
    assert flags & FLAG_CRC32
    assert zlib.crc32(frame[HEADER_BYTES:]) == checksum
    assert len(frame) == HEADER_BYTES + 12 * count + size
    return frame[len(frame) - size :]


async def ordinary(server: Served) -> bytes:
    """The records as an ordinary read gives them."""
    frame = (await asked(server, "")).body
    *_, flags, _, count, _, _, size = HEADER.unpack_from(frame)
    assert not flags & FLAG_CRC32
    assert count == COUNT
    return frame[-size:]


async def test_the_records_are_those_of_an_ordinary_answer(
    server: Served, sendings: Sendings
) -> None:
    plain = await ordinary(server)
    assert sendings.count == 0
    answer = await asked(server)
    assert sendings.count == 1
    assert answer.status == 200
    records = records_of(answer.body)
    assert records == plain[: len(records)]
    assert len(records) == len(plain) // COUNT * WHOLE
    assert answer.headers["mq-next-offset"] == str(WHOLE)
    assert answer.headers["mq-pull-status"] == "FOUND"
    assert answer.headers["mq-up-to-date"] == "false"
    assert len(bytes.fromhex(answer.headers["mq-store-id"])) == 4


async def test_no_cache_may_keep_what_nobody_has_looked_at(server: Served) -> None:
    end = f"&until_offset={WHOLE}"
    answer = await asked(server, f"{end}&checksum=crc32")
    assert answer.headers["cache-control"] == "no-store"
    assert "etag" not in answer.headers
    assert "immutable" in (await asked(server, end)).headers["cache-control"]


@pytest.mark.parametrize(
    ("query", "more"),
    [
        ("&checksum=crc32&min_messages=10", "Accept-Encoding: gzip\r\n"),
        ("&checksum=crc32&max_bytes=16777216", "Accept-Encoding: gzip\r\n"),
        ("&checksum=crc32&filter=none", ""),
        ("&checksum=crc32&max_messages=40", ""),
        ("&checksum=crc32&max_bytes=1000", ""),
        ("&checksum=crc32", "Accept: application/json\r\n"),
        ("&checksum=crc32c", ""),
    ],
    ids=[
        "packed",
        "packed and large",
        "filtered",
        "few",
        "small",
        "as JSON",
        "with the other checksum",
    ],
)
async def test_all_else_is_read(server: Served, sendings: Sendings, query: str, more: str) -> None:
    names = query.replace("&", "=").split("=")[1::2]
    target = "&".join(each for each in PULL.split("&") if each.split("=")[0] not in names)
    async with contextlib.aclosing(await server.connect()) as connection:
        await connection.say(request(query, more).replace(PULL.encode(), target.encode()))
        answer = await connection.answer()
    assert answer.status == 200
    assert sendings.count == 0
    if "Accept: " in more:
        assert msgspec.json.decode(answer.body)["status"] == "FOUND"
        return
    body = zlib.decompress(answer.body, 31) if more else answer.body
    if "crc32c" not in query:
        records_of(body)


async def test_an_unknown_checksum_is_refused(server: Served) -> None:
    answer = await asked(server, "&checksum=md5")
    assert (answer.status, answer.code) == (400, "BAD_REQUEST")
    assert b"crc32" in answer.body


async def test_answers_come_in_order_on_one_connection(server: Served, sendings: Sendings) -> None:
    """Also when the one before waits in the transport, and has to go first."""
    health = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with contextlib.aclosing(await server.connect()) as connection:
        await connection.say(health + request() + health + request() + health)
        answers = [await connection.answer() for _ in range(5)]
        for number, answer in enumerate(answers):
            if number % 2:
                assert len(records_of(answer.body)) > WHOLE * 12 * KIB
            else:
                assert answer.headers["content-type"] == "application/json"
        assert sendings.count == 2
        await connection.say(request())
        assert records_of((await connection.answer()).body) == records_of(answers[1].body)


async def test_what_the_transport_still_holds_goes_first(
    server: Served, sendings: Sendings
) -> None:
    """A client that reads nothing yet has an ordinary answer on its way."""
    plain = await ordinary(server)
    async with contextlib.aclosing(await server.connect()) as connection:
        connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await connection.say(request("") + request())
        await until(lambda: server.connections.pressure.answer_bytes > 0)
        connection.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert (await connection.answer()).body.endswith(plain)
        records = records_of((await connection.answer()).body)
        assert records == plain[: len(records)]
        assert sendings.count == 1


class Busy:
    """A transport that still has something to write."""

    def __init__(self) -> None:
        self.written = b""

    def get_write_buffer_size(self) -> int:
        return 1

    def write(self, data: bytes) -> None:
        self.written += data


async def test_it_goes_through_a_transport_that_is_busy(server: Served) -> None:
    plain = await ordinary(server)
    read = server.node.broker.store.read(
        "orders", 0, 0, max_messages=COUNT, max_bytes=8 * MIB, in_place=True
    )
    assert isinstance(read.records, RecordsInPlace)
    transport = Busy()
    sending = FileSending(cast("asyncio.Transport", transport), asyncio.Event(), FileAnswers(9))
    await sending.run(b"head", read.records.parts)
    assert transport.written == b"head" + plain[: read.records.total_bytes]
    assert sending.unsent_bytes == 0


class Stuck(Busy):
    """A connection to nobody."""

    def __init__(self, one: socket.socket) -> None:
        super().__init__()
        self.is_aborted = False
        self._one = one

    @override
    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str) -> socket.socket | None:
        return {"socket": self._one, "sslcontext": None}[name]

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True


class Slow:
    """A part of a file on a disk that answers when it is told to."""

    size = 10

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.descriptors: list[int] = []

    def will_read(self) -> None:
        pass

    def send(self, target: int, done: int, *, wait_for_disk: bool) -> int:
        if not wait_for_disk:
            raise files.ColdRead
        self.begun.set()
        assert self.may_end.wait(60)
        os.fstat(target)
        self.descriptors.append(target)
        return self.size - done


async def test_a_thread_has_its_socket_until_it_is_done() -> None:
    """Also when the request is cancelled: another connection must not get the descriptor."""
    ours, theirs = socket.socketpair()
    part = Slow()
    with ours, theirs:
        transport = Stuck(ours)
        sending = FileSending(cast("asyncio.Transport", transport), asyncio.Event(), FileAnswers(9))
        run = asyncio.ensure_future(sending.run(b"head", [cast("FilePart", part)]))
        await until(part.begun.is_set)
        for _ in range(2):
            run.cancel()
            await asyncio.sleep(0)
            assert not run.done()
        part.may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert transport.is_aborted
        [descriptor] = part.descriptors
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


class OnDisk:
    """A part that is in memory or not, which is taken in two steps and notes what is done to it."""

    size = 2

    def __init__(self, name: str, *, is_cold: bool, done: list[str]) -> None:
        self.name = name
        self.is_cold = is_cold
        self.done = done

    def will_read(self) -> None:
        assert threading.current_thread() is not threading.main_thread(), "it may take its time"
        self.done.append(f"{self.name} is read ahead")

    def send(self, target: int, done: int, *, wait_for_disk: bool) -> int:
        if self.is_cold and not wait_for_disk:
            raise files.ColdRead
        self.done.append(f"{self.name} sends its byte {done}")
        return 1


async def test_what_is_behind_the_first_part_on_disk_is_read_ahead_once() -> None:
    ours, theirs = socket.socketpair()
    done: list[str] = []
    parts = [
        cast("FilePart", OnDisk(name, is_cold=name != "a", done=done)) for name in ("a", "b", "c")
    ]
    with ours, theirs:
        sending = FileSending(
            cast("asyncio.Transport", Stuck(ours)), asyncio.Event(), FileAnswers(9)
        )
        await sending.run(b"head", parts)
    assert done == [
        *("a sends its byte 0", "a sends its byte 1"),
        *("b is read ahead", "c is read ahead"),
        *("b sends its byte 0", "b sends its byte 1", "c sends its byte 0", "c sends its byte 1"),
    ]


async def test_a_last_answer_closes_the_connection(server: Served) -> None:
    async with contextlib.aclosing(await server.connect()) as connection:
        await connection.say(request(more="Connection: close\r\n"))
        answer = await connection.answer()
        assert answer.headers["connection"] == "close"
        records_of(answer.body)
        assert await connection.rest() == b""


async def unread(server: Served, connection: RawConnection) -> None:
    """Ask, read nothing, and wait until no more is taken."""
    connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await connection.say(request())
    await until(lambda: 0 < waiting_bytes(server) < WHOLE * 12 * KIB)


def waiting_bytes(server: Served) -> int:
    return sum(
        each._at_work.unsent_bytes  # type: ignore[attr-defined]
        for each in server.connections._open
        if each._at_work is not None  # type: ignore[attr-defined]
    )


async def test_a_slow_reader_gets_all(server: Served, sendings: Sendings) -> None:
    async with contextlib.aclosing(await server.connect()) as connection:
        await unread(server, connection)
        assert server.connections.pressure.answer_bytes == 0, "nobody holds what is not taken"
        calls = sendings.calls
        connection.writer.transport.resume_reading()  # type: ignore[attr-defined]
        records_of((await connection.answer()).body)
        assert sendings.calls > calls
        assert waiting_bytes(server) == 0


async def test_a_reader_that_stops_is_cut_off(server: Served, sendings: Sendings) -> None:
    async with contextlib.aclosing(await server.connect()) as connection:
        await unread(server, connection)
        assert len(sendings.descriptors) == 1
        late = server.connections.late_count
        server.connections.limits = replace(LIMITS, unread_answer_ms_max=200)
        await until(lambda: server.connections.open_count == 0)
        assert server.connections.late_count == late + 1
        await until(lambda: not sendings.descriptors)


async def test_a_client_that_leaves_within_the_body_leaves_nothing(
    server: Served, sendings: Sendings
) -> None:
    for _ in range(3):
        async with contextlib.aclosing(await server.connect()) as connection:
            await unread(server, connection)
            connection.writer.transport.abort()
        await until(lambda: server.connections.open_count == 0 and not sendings.descriptors)
    records_of((await asked(server)).body)


async def test_an_answer_beyond_the_most_is_read_and_the_same(
    server: Served, sendings: Sendings
) -> None:
    given: list[int | None] = []

    class Noting(FileAnswers):
        @override
        def second_descriptor(self, transport: asyncio.Transport) -> int | None:
            given.append(super().second_descriptor(transport))
            return given[-1]

    server.connections.file_answers = Noting(1)
    whole = records_of((await asked(server)).body)
    async with contextlib.aclosing(await server.connect()) as connection:
        await unread(server, connection)
        assert records_of((await asked(server)).body) == whole
        assert [each is None for each in given] == [False, False, True]
        connection.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert records_of((await connection.answer()).body) == whole
    await until(lambda: not sendings.descriptors)


@pytest.fixture
def segment(server: Served, tmp_path: Path) -> Path:
    return min((tmp_path / "store" / "commitlog").iterdir())


@pytest.mark.parametrize("first_in_memory", [0, 3 * MIB, 1 << 60])
async def test_what_is_not_in_memory_is_sent_by_a_thread(
    server: Served, sendings: Sendings, monkeypatch: pytest.MonkeyPatch, first_in_memory: int
) -> None:
    monkeypatch.setattr(files, "is_in_memory", lambda _, offset, __: offset >= first_in_memory)
    plain = await ordinary(server)
    records = records_of((await asked(server)).body)
    assert records == plain[: len(records)]
    at_least = min(first_in_memory, len(records)) // files.SEND_BYTES_MAX
    assert at_least <= sendings.in_threads < sendings.calls
    assert (sendings.in_threads == 0) is (first_in_memory == 0)


def change(segment: Path, record: bytes) -> None:
    """A byte of the body of the record that begins so."""
    with segment.open("r+b") as file:
        file.seek(file.read().index(record) + 5_000)
        file.write(b"\xff")


async def test_damage_fits_no_checksum_and_is_found_by_who_asks_again(
    server: Served, segment: Path
) -> None:
    plain = await ordinary(server)
    change(segment, plain[:100])
    frame = (await asked(server)).body
    assert zlib.crc32(frame[HEADER_BYTES:]) != HEADER.unpack_from(frame)[5]
    again = await asked(server, "")
    assert msgspec.json.decode(again.headers["mq-gaps"]) == [
        {"from": 0, "to": 1, "reason": "CORRUPT"}
    ]


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_file_that_cannot_be_read_ends_the_connection_within_the_body(
    server: Served,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    in_thread: bool,
) -> None:
    def broken(*_: object, wait_for_disk: bool) -> int:
        if in_thread and not wait_for_disk:
            raise files.ColdRead
        raise OSError(5, "the disk is broken")

    monkeypatch.setattr(FilePart, "send", broken)
    async with contextlib.aclosing(await server.connect()) as connection:
        await connection.say(request())
        said = await connection.rest()
        assert 0 < len(said) < WHOLE * 12 * KIB
    assert "could not be sent from its files" in caplog.text
    await until(lambda: server.connections.open_count == 0)
    assert (await asked(server, "")).status == 200


async def test_a_file_that_is_too_short_ends_the_connection_within_the_body(
    server: Served, segment: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.truncate(segment, 3 * MIB)
    async with contextlib.aclosing(await server.connect()) as connection:
        await connection.say(request())
        said = await connection.rest()
        assert len(said) < WHOLE * 12 * KIB
    assert "bytes too soon" in caplog.text


async def test_a_node_that_stops_lets_the_answer_go_out(server: Served) -> None:
    async with contextlib.aclosing(await server.connect()) as connection:
        await unread(server, connection)
        server.connections._open.copy().pop().shutdown()  # type: ignore[attr-defined]
        connection.writer.transport.resume_reading()  # type: ignore[attr-defined]
        records_of((await connection.answer()).body)
        assert await connection.rest() == b""


async def test_more_may_be_asked_for_of_what_is_not_read(
    server: Served, sendings: Sendings
) -> None:
    target = PULL.replace("8388608", "16777216").replace("=1000", "=20000").encode()
    async with contextlib.aclosing(await server.connect()) as connection:
        await connection.say(request("").replace(PULL.encode(), target))
        answer = await connection.answer()
        assert (answer.status, answer.code) == (400, "BAD_REQUEST")
        await connection.say(request().replace(PULL.encode(), target))
        records_of((await connection.answer()).body)
        assert sendings.count == 1


def frame_of(count: int) -> bytes:
    frame = request_frame([Message(bytes(12 * KIB)) for _ in range(count)], "parcels")
    head = b"POST /v1/topics/parcels/messages:batch?queue_id=0 HTTP/1.1\r\nHost: localhost\r\n"
    head += b"Content-Type: application/vnd.curlew.batch\r\nContent-Length: %d\r\n\r\n"
    return head % len(frame) + frame


@pytest.mark.parametrize(
    ("first", "more", "needed", "from_files"),
    [(0, 128, 1, 1), (128, 128, 256, 0), (2, 128, 130, 0)],
    ids=["nothing, then a block", "a block, then another", "few, then a block"],
)
async def test_a_pull_that_waits_finds_what_was_there_and_what_comes(
    server: Served, sendings: Sendings, first: int, more: int, needed: int, from_files: int
) -> None:
    target = "/v1/topics/parcels/queues/0/messages?offset=0&max_messages=1000"
    query = f"&max_bytes=8388608&min_messages={needed}&wait=60&checksum=crc32"
    async with (
        contextlib.aclosing(await server.connect()) as sender,
        contextlib.aclosing(await server.connect()) as reader,
    ):
        await sender.say(b"PUT /v1/topics/parcels HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await sender.answer()).status == 201
        if first:
            await sender.say(frame_of(first))
            assert (await sender.answer()).status == 200
        await reader.say(request(query).replace(PULL.encode(), target.encode()))
        await until(lambda: server.node.broker.long_polls.count == 1)
        await sender.say(frame_of(more))
        assert (await sender.answer()).status == 200
        answer = await reader.answer()
    assert answer.status == 200, answer.body
    assert answer.headers["mq-next-offset"] == str(first + more)
    assert len(records_of(answer.body)) % (first + more) == 0
    assert sendings.count == from_files
