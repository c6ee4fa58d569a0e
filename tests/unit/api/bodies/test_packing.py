"""Packing of large answers: only when the client names just one encoding."""

import zlib

import pytest
import zstandard

from app.api.bodies.packing import names, pack, wanted_packing


@pytest.mark.parametrize(
    ("accepted", "packing"),
    [
        (None, None),
        (b"", None),
        (b"zstd", b"zstd"),
        (b" GZIP ", b"gzip"),
        (b"gzip, deflate, br, zstd", None),
        (b"identity", None),
        (b"br", None),
    ],
)
def test_a_list_of_all_that_a_library_knows_is_no_wish(
    accepted: bytes | None, packing: bytes | None
) -> None:
    assert wanted_packing(accepted) == packing


@pytest.mark.parametrize(
    ("accepted", "is_named"),
    [
        (b"lz4", True),
        (b"gzip, LZ4;q=0.5", True),
        (b"*", False),
        (b"gzip, *", False),
        (b"lz4;q=0", False),
        (b"lz4;q=0, *", False),
    ],
)
def test_what_http_does_not_know_is_not_meant_by_a_star(accepted: bytes, is_named: bool) -> None:
    assert names(accepted, b"lz4") is is_named


@pytest.mark.anyio
@pytest.mark.parametrize("size", [0, 100, 1_000_000])
async def test_what_is_packed_is_unpacked(size: int) -> None:
    body = b"frame" * (size // 5)
    assert zlib.decompress(await pack(b"gzip", body), 16 + zlib.MAX_WBITS) == body
    unpacked = zstandard.ZstdDecompressor().decompress(await pack(b"zstd", body), size + 1)
    assert unpacked == body
