"""Frames that are read in pieces, with the bodies put apart, against the same ones read whole."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_curlew.errors import FrameDamaged
from pyspark_curlew.http.http_options import HttpOptions
from pyspark_curlew.http.reply import Answer
from pyspark_curlew.http.retry import RetryPolicy, TryLater
from pyspark_curlew.http.transport import Request, Transport
from pyspark_curlew.wire import parting
from pyspark_curlew.wire.columns import decode
from pyspark_curlew.wire.frame import CONTENT_TYPE, Block, Frame, parse_frame
from pyspark_curlew.wire.parting import PIECE_BYTES_MAX, PIECE_BYTES_MIN, Parted, pieces_of

from spark_connector.tests.support.records import Record, frame, properties
from spark_connector.tests.support.scripted import Script, run_scripted

STORE_ID = bytes(4)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parting, "PIECE_BYTES_MIN", 1)
    monkeypatch.setattr(parting, "PIECE_BYTES_MAX", 700)
    read_in_pieces(frame([Record(0).encode()]))


def read_whole(data: bytes) -> Block:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parting, "PIECE_BYTES_MIN", 1 << 40)
        found = parse_frame(data)
    assert isinstance(found, Block)
    return found


def read_in_pieces(data: bytes) -> Parted:
    found = parse_frame(data)
    assert isinstance(found, Parted)
    return found


def columns(found: Frame) -> tuple[dict[str, list[object]], list[int]]:
    batch, offsets = decode(found, "orders", 3, STORE_ID, include_properties=True)
    batch.validate(full=True)
    listed: dict[str, list[object]] = batch.to_pydict()
    return listed, offsets.tolist()


def numbered(bodies: Sequence[bytes]) -> list[bytes]:
    return [
        Record(number, body, properties(("KEYS", f"k{number}"), ("TAGS", "t"))).encode()
        for number, body in enumerate(bodies)
    ]


BODY = st.sampled_from([0, 1, 5, 40, 900]).flatmap(
    lambda size: st.binary(min_size=size, max_size=size)
)
RECORD = st.builds(
    Record,
    queue_offset=st.integers(0, 1 << 40),
    body=BODY,
    properties=st.sampled_from(
        [b"", b"TAGS\x01a", b"KEYS\x01k\x02u\x01v", b"__CRC32#\x010123456789\x02"]
    ),
    wide_topic=st.booleans(),
    born_v6=st.sampled_from([False, False, True]),
    store_v6=st.sampled_from([False, False, True]),
)
RUN = st.tuples(RECORD, st.integers(1, 12)).map(lambda one: [one[0]] * one[1])
RUNS = st.lists(RUN, min_size=1, max_size=6).map(
    lambda runs: [each for run in runs for each in run]
)


@pytest.mark.usefixtures("small_pieces")
@given(records=RUNS, tag_hashes=st.booleans())
def test_all_rows_are_those_of_the_frame_read_whole(
    records: list[Record], tag_hashes: bool
) -> None:
    data = frame([each.encode() for each in records], tag_hashes=tag_hashes)
    found = read_in_pieces(data)
    assert columns(found) == columns(read_whole(data))
    batch, _ = decode(found, "orders", 3, STORE_ID, include_properties=False)
    assert batch.column("value").to_pylist() == [each.body for each in records]


@pytest.mark.usefixtures("small_pieces")
@given(st.lists(st.integers(0, 60), min_size=1, max_size=40))
def test_bodies_of_several_sizes_in_records_of_one(sizes: list[int]) -> None:
    """The longer a body is, the shorter are its properties."""
    records = [
        Record(number, bytes([number]) * size, b"x" * (60 - size))
        for number, size in enumerate(sizes)
    ]
    data = frame([each.encode() for each in records])
    assert columns(read_in_pieces(data)) == columns(read_whole(data))


@pytest.mark.usefixtures("small_pieces")
def test_hosts_of_both_kinds_in_records_of_one_size() -> None:
    """Also where the length of an empty body has four zeros of the other kind in its place."""
    kinds = [(False, False), (True, False), (True, True), (False, False)]
    bodies = [b"", b"c" * 38, b"d" * 26, b"e" * 50]
    records = [
        Record(number, body, b"x" * (50 - len(body)) if number == 0 else b"", born_v6=b, store_v6=s)
        for number, (body, (b, s)) in enumerate(zip(bodies, kinds, strict=True))
    ]
    encoded = [each.encode() for each in records]
    assert len({len(each) for each in encoded}) == 1
    found, _ = columns(read_in_pieces(frame(encoded)))
    assert found["value"] == bodies


@pytest.mark.usefixtures("small_pieces")
def test_one_host_of_either_kind_in_records_of_one_size() -> None:
    """The store time is not where it is in the record before."""
    records = [
        Record(number, store_ms=number, born_v6=number % 2 == 0, store_v6=number % 2 == 1)
        for number in range(5)
    ]
    data = frame([each.encode() for each in records])
    assert columns(read_in_pieces(data)) == columns(read_whole(data))


CHECKSUM = b"__CRC32#\x010123456789\x02"


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize(
    ("last", "is_left_out"),
    [
        (CHECKSUM, True),
        (b"TAGS\x01a\x02" + CHECKSUM, True),
        (CHECKSUM + CHECKSUM, True),
        (b"", False),
        (b"TAGS\x01" + b"a" * 30, False),
        (CHECKSUM[:-1], False),
        (b"KEYS\x01" + CHECKSUM, False),
        (b"KEYS\x01k" + CHECKSUM, False),
        (b"_" + CHECKSUM, False),
        (CHECKSUM + b"TAGS\x01a", False),
        (b"__CRC32#\x010123\x026789T\x02", False),
        (b"__CRC32#\x01012345678\x01\x02", False),
        (b"__CRC32#\x010123456789T", False),
        (b"__CRC31#\x010123456789\x02", False),
        (b"__SRC32#\x010123456789\x02", False),
        (b"__CRC32#\x020123456789\x02", False),
    ],
)
def test_checksums_are_left_out_where_each_record_ends_with_one(
    last: bytes, is_left_out: bool
) -> None:
    """The rows are the same, also where what ends like one is the end of something else."""
    all_properties = [CHECKSUM] * 3 + [b"KEYS\x01k\x02" + CHECKSUM, last]
    records = [Record(number, b"b", each) for number, each in enumerate(all_properties)]
    data = frame([each.encode() for each in records])
    found = read_in_pieces(data)
    left_out = sum(map(len, all_properties)) - len(found.properties)
    assert left_out == (len(CHECKSUM) * len(records) if is_left_out else 0)
    assert columns(found) == columns(read_whole(data))


SIZES = st.lists(
    st.tuples(st.integers(91, 3 * PIECE_BYTES_MAX), st.integers(1, 5_000)), min_size=1, max_size=5
)


@given(SIZES)
def test_pieces_are_all_records_in_order_and_bounded(runs: list[tuple[int, int]]) -> None:
    sizes = np.repeat([size for size, _ in runs], [count for _, count in runs])
    pieces = pieces_of(sizes)
    changes = np.count_nonzero(np.diff(sizes)) + 1
    assert (pieces is None) == (sizes.sum() / changes < PIECE_BYTES_MIN)
    for piece in pieces or []:
        assert len(set(sizes[piece.start : piece.stop])) == 1
        assert len(piece) == 1 or sizes[piece.start] * len(piece) <= PIECE_BYTES_MAX
    if pieces is not None:
        assert [n for piece in pieces for n in piece] == list(range(len(sizes)))


@pytest.mark.parametrize("sizes", [[], [0], [90], [1 << 20, 90, 1 << 20]])
def test_what_is_no_record_makes_no_pieces(sizes: list[int]) -> None:
    assert pieces_of(np.array(sizes, dtype=np.int64)) is None


def test_an_ordinary_large_frame_is_read_in_pieces() -> None:
    data = frame(numbered([bytes(1024)] * 1000), tag_hashes=True)
    assert columns(read_in_pieces(data)) == columns(read_whole(data))


def test_a_frame_of_ever_other_sizes_is_read_whole() -> None:
    data = frame(numbered([bytes(1000 + number % 7) for number in range(1000)]))
    assert isinstance(parse_frame(data), Block)


# --- over a connection

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n%bContent-Length: %d\r\n\r\n"
GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LARGE = frame(numbered([bytes([number % 251]) * 1024 for number in range(3000)]))


def sized(data: bytes, kind: str = CONTENT_TYPE, more: bytes = b"") -> bytes:
    return HEAD % (kind.encode(), more, len(data)) + data


def ask(*scripts: Script, may_be_frame: bool = True) -> tuple[list[Answer | Exception], list[int]]:
    """What becomes of two requests one after the other, and how many each connection had."""
    found: list[Answer | Exception] = []
    with run_scripted(*scripts) as server:
        options = HttpOptions((f"http://127.0.0.1:{server.port}",), 5000, 10_000, 0, 0)
        transport = Transport(options, RetryPolicy(0))
        request = Request("GET", "/v1/things", {}, {}, may_be_frame=may_be_frame)
        for _ in range(2):
            try:
                found.append(transport.once(request))
            except (TryLater, FrameDamaged) as failure:
                found.append(failure)
        return found, server.requests


def frame_of(answer: Answer | Exception) -> Frame:
    assert isinstance(answer, Answer)
    assert answer.frame is not None
    assert answer.body == b""
    return answer.frame


@pytest.mark.parametrize("data", [LARGE, frame(numbered([b"small"])), frame([])])
def test_a_frame_is_read_as_it_comes(data: bytes) -> None:
    (first, second), requests = ask([sized(data), sized(data)])
    assert requests == [2]
    for answer in (first, second):
        assert columns(frame_of(answer)) == columns(read_whole(data))
    assert isinstance(frame_of(first), Parted) == (data is LARGE)


@pytest.mark.parametrize(
    "raw",
    [
        sized(LARGE, "application/json"),
        sized(pa.compress(LARGE, "zstd", asbytes=True), more=b"Content-Encoding: zstd\r\n"),
        sized(LARGE).replace(b"200 OK", b"206 Partial"),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: "
        + f"{CONTENT_TYPE}\r\n\r\n{len(LARGE):x}\r\n".encode()
        + LARGE
        + b"\r\n0\r\n\r\n",
    ],
    ids=["of another kind", "packed", "of another status", "in chunks"],
)
def test_all_else_is_a_body(raw: bytes) -> None:
    (first, second), requests = ask([raw, GOOD])
    assert requests == [2]
    assert isinstance(first, Answer)
    assert first.frame is None
    assert bytes(first.body) == LARGE
    assert isinstance(second, Answer)


def test_who_does_not_ask_for_one_gets_a_body() -> None:
    (first, _), _ = ask([sized(LARGE), GOOD], may_be_frame=False)
    assert isinstance(first, Answer)
    assert (first.frame, bytes(first.body)) == (None, LARGE)


@pytest.mark.parametrize("end", [0, 31, 32, 40, 12_032, 12_500, PIECE_BYTES_MAX, len(LARGE) - 1])
def test_a_frame_that_is_cut_is_asked_for_again(end: int) -> None:
    cut = sized(LARGE)[: end - len(LARGE)]
    (first, second), requests = ask([cut, None], [sized(LARGE)])
    assert isinstance(first, TryLater)
    assert "the answer end" in first.reason
    assert columns(frame_of(second)) == columns(read_whole(LARGE))
    assert requests == [1, 1]


@pytest.mark.parametrize("position", [8, 33, 13_000, len(LARGE) // 2, len(LARGE) - 1])
def test_a_damaged_frame_leaves_no_connection_behind(position: int) -> None:
    """What follows in it would be taken for the next answer."""
    bad = bytearray(LARGE)
    bad[position] ^= 1
    (first, second), requests = ask([sized(bytes(bad)), None], [sized(LARGE)])
    assert isinstance(first, FrameDamaged)
    assert columns(frame_of(second)) == columns(read_whole(LARGE))
    assert requests == [1, 1]
