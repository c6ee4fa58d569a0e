"""Bombs and damage in compressed bodies."""

import gzip
import os

import pytest

from app.api.exchange import body_too_large
from app.api.unpacking import is_packed, unpack
from app.domain.errors import BodyTooLarge, MalformedBody, UnsupportedContentType
from app.domain.limits import MIB, Limits

pytestmark = pytest.mark.anyio

LIMITS = Limits()


async def unpacked(body: bytes, limit: int = 4 * MIB) -> bytes:
    return await unpack(body, limit, LIMITS, body_too_large)


@pytest.mark.parametrize("size", [0, 1, 70_000, 4 * MIB])
async def test_members_are_joined(size: int) -> None:
    body = os.urandom(size)
    assert await unpacked(gzip.compress(body) + gzip.compress(b"")) == body


async def test_a_body_may_unpack_to_the_limit_and_no_further() -> None:
    assert await unpacked(gzip.compress(b"x" * 1_000), 1_000) == b"x" * 1_000
    with pytest.raises(BodyTooLarge):
        await unpacked(gzip.compress(b"x" * 1_001), 1_000)


async def test_members_together_are_bounded() -> None:
    with pytest.raises(BodyTooLarge):
        await unpacked(gzip.compress(b"x" * 600) * 2, 1_000)


async def test_a_bomb_is_refused_by_its_ratio() -> None:
    with pytest.raises(MalformedBody, match="100 times"):
        await unpacked(gzip.compress(b"\0" * (2 * MIB)))


async def test_a_small_body_may_have_any_ratio() -> None:
    assert len(await unpacked(gzip.compress(b"\0" * MIB))) == MIB


@pytest.mark.parametrize("cut", [1, 9, 10, 15, -9, -1])
async def test_a_cut_stream_is_refused(cut: int) -> None:
    with pytest.raises(MalformedBody):
        await unpacked(gzip.compress(b"hello world")[:cut])


@pytest.mark.parametrize("body", [b"hello", b"\x78\x9c\x03\x00\x00\x00\x00\x01"])
async def test_what_is_no_gzip_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedBody):
        await unpacked(body)


async def test_a_damaged_checksum_is_noticed() -> None:
    packed = bytearray(gzip.compress(b"hello world"))
    packed[-6] ^= 1
    with pytest.raises(MalformedBody):
        await unpacked(bytes(packed))


@pytest.mark.parametrize("encoding", [None, b"", b"identity", b" Identity "])
def test_plain_bodies(encoding: bytes | None) -> None:
    assert not is_packed(encoding)


def test_other_encodings_are_refused() -> None:
    assert is_packed(b"GZIP")
    for encoding in (b"br", b"gzip, gzip", b"deflate"):
        with pytest.raises(UnsupportedContentType):
            is_packed(encoding)
