"""RocketMQ's record, as far as `parting` and `records` both need it. Big-endian.

0 size · 4 magic · 20 queue offset · 28 physical offset · 36 system flags · 40 born time · 48 born
host (8, or 20 with IPv6) · store time · store host (8 or 20) · 12 more bytes · body length (at 84
with IPv4 hosts) and body · topic length (1 byte; 2 in version 2) and topic · properties length (2)
and properties.
"""

from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
"""As V1, with two bytes for the length of the topic."""
FLAGS_AT: Final = 36
STORE_TIME_AT: Final = 56
"""With an IPv4 host in front of it."""
FIXED_BYTES: Final = 88
"""In front of the body, with IPv4 hosts."""
RECORD_BYTES_MIN: Final = 91
"""Of a V1 record with IPv4 hosts, without body, topic and properties."""
CHECKSUM: Final = b"__CRC32#\x010000000000\x02"
"""The property that the service puts behind all others, before it is known."""

_V6_EXTRA: Final = 12
"""How much longer an IPv6 host is."""

Flags = TypeVar("Flags", int, NDArray[np.integer])
"""Of one record, or of many: bit 4 says that the born host has IPv6, bit 5 the store host."""


def store_time_shift(flags: Flags) -> Flags:
    """By how many bytes the store time is farther behind than with an IPv4 host in front of it."""
    return (flags >> 4 & 1) * _V6_EXTRA


def body_shift(flags: Flags) -> Flags:
    """The same for the body and its length, which have both hosts in front of them."""
    return store_time_shift(flags) + (flags >> 5 & 1) * _V6_EXTRA
