"""Bombs and damage in compressed bodies."""

import gzip
import os
import zlib
from collections.abc import Callable

import pytest
import zstandard

from app.api.bodies.unpacking import Packing, packing_of, unpack
from app.api.http.errors import UnsupportedEncoding, render_problem
from app.api.http.request_context import body_too_large
from app.domain.errors import BodyTooLarge, MalformedBody
from app.domain.limits import MIB, Limits

pytestmark = pytest.mark.anyio

LIMITS = Limits()


async def unpacked(body: bytes, limit: int = 4 * MIB) -> bytes:
    """Of gzip, or of zstd when it begins like that."""
    packing: Packing = "gzip" if body[:2] == b"\x1f\x8b" else "zstd"
    return await unpack(packing, body, limit, LIMITS, body_too_large)


def zstd(body: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(body)


def zstd_run(body: bytes) -> bytes:
    """A frame that does not say how long its content is."""
    stream = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    return stream.compress(body) + stream.flush()


Pack = Callable[[bytes], bytes]

PACKERS = pytest.mark.parametrize("pack", [gzip.compress, zstd, zstd_run])


@PACKERS
@pytest.mark.parametrize("size", [0, 1, 70_000, 4 * MIB])
async def test_members_are_joined(pack: Pack, size: int) -> None:
    body = os.urandom(size)
    assert await unpacked(pack(body) + pack(b"")) == body
    assert await unpacked(pack(body[:100]) + pack(body[100:])) == body


@PACKERS
async def test_a_body_may_unpack_to_the_limit_and_no_further(pack: Pack) -> None:
    assert await unpacked(pack(b"x" * 1_000), 1_000) == b"x" * 1_000
    with pytest.raises(BodyTooLarge):
        await unpacked(pack(b"x" * 1_001), 1_000)


@PACKERS
async def test_members_together_are_bounded(pack: Pack) -> None:
    with pytest.raises(BodyTooLarge):
        await unpacked(pack(b"x" * 600) * 2, 1_000)


@PACKERS
async def test_a_bomb_is_refused_by_its_ratio(pack: Pack) -> None:
    with pytest.raises(MalformedBody, match="100 times"):
        await unpacked(pack(b"\0" * (2 * MIB)))


@PACKERS
async def test_a_large_bomb_is_refused_in_its_thread(pack: Pack) -> None:
    with pytest.raises(BodyTooLarge):
        await unpacked(pack(os.urandom(60_000) + b"\0" * (5 * MIB)))


@PACKERS
async def test_a_small_body_may_have_any_ratio(pack: Pack) -> None:
    assert len(await unpacked(pack(b"\0" * MIB))) == MIB


@PACKERS
async def test_a_cut_stream_is_refused_wherever_it_is_cut(pack: Pack) -> None:
    whole = pack(b"hello world, hello world, hello world")
    for cut in range(2, len(whole)):
        with pytest.raises(MalformedBody):
            await unpacked(whole[:cut])
        with pytest.raises(MalformedBody):
            await unpacked(whole + whole[:cut])


@PACKERS
async def test_what_follows_a_member_is_a_member(pack: Pack) -> None:
    with pytest.raises(MalformedBody):
        await unpacked(pack(b"hello") + b"and more")


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
@pytest.mark.parametrize(
    "body", [b"hello", b"\x78\x9c\x03\x00\x00\x00\x00\x01", b"\x28\xb5\x2f\xfd"]
)
async def test_what_is_not_packed_is_refused(packing: Packing, body: bytes) -> None:
    with pytest.raises(MalformedBody):
        await unpack(packing, body, MIB, LIMITS, body_too_large)


@pytest.mark.parametrize("pack", [gzip.compress, zstd_run])
async def test_a_damaged_checksum_is_noticed(pack: Pack) -> None:
    packed = bytearray(pack(b"hello world"))
    packed[-6 if pack is gzip.compress else -1] ^= 1
    with pytest.raises(MalformedBody):
        await unpacked(bytes(packed))


async def test_skippable_frames_are_skipped() -> None:
    skippable = b"\x5a\x2a\x4d\x18\x03\0\0\0abc"
    assert await unpacked(zstd(b"a") + skippable + zstd(b"b")) == b"ab"
    for cut in range(1, len(skippable)):
        with pytest.raises(MalformedBody):
            await unpacked(zstd(b"a") + skippable[:cut])


async def test_a_window_that_takes_much_memory_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=24)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    with pytest.raises(MalformedBody, match="not zstd"):
        await unpacked(stream.compress(b"x") + stream.flush())


@pytest.mark.parametrize("encoding", [None, b"", b"identity", b" Identity "])
def test_plain_bodies(encoding: bytes | None) -> None:
    assert packing_of(encoding) is None


def test_other_encodings_are_refused_with_the_list_of_those_that_are_taken() -> None:
    assert (packing_of(b"GZIP"), packing_of(b" zstd")) == ("gzip", "zstd")
    for encoding in (b"br", b"gzip, gzip", b"lz4"):
        with pytest.raises(UnsupportedEncoding) as refused:
            packing_of(encoding)
        status, headers, _ = render_problem(refused.value, instance="/", request_id=b"1")
        assert (status, dict(headers)[b"accept-encoding"]) == (415, b"gzip, deflate, zstd")


async def test_many_members_cost_no_more_than_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[int] = []
    real = zlib.decompressobj

    class Counting:
        """Counts what is given to zlib, which copies what it does not use."""

        def __init__(self, wbits: int) -> None:
            self._stream = real(wbits)

        def __getattr__(self, name: str) -> object:
            return getattr(self._stream, name)

        def decompress(self, data: bytes, size: int) -> bytes:
            fed.append(len(data))
            return self._stream.decompress(data, size)

    monkeypatch.setattr(zlib, "decompressobj", Counting)
    members = 1_500
    assert await unpacked(gzip.compress(b"x") * members) == b"x" * members
    assert len(fed) == members
    assert sum(fed) <= members * 1_024
