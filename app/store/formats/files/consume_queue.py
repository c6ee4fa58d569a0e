"""The consume-queue unit: RocketMQ's 20 bytes, so that unit n stands at byte 20 n.

    0   physical offset   8      8   size of the record   4      12   tag hash   8

Big-endian. The tag hash is Java's `String.hashCode` of the tag, sign-extended; 0 without a tag. A
unit of zeros was never written: no record has size 0.
"""

import struct
from typing import Final

import numpy as np

UNIT: Final = struct.Struct(">qiq")
UNIT_BYTES: Final = 20
assert UNIT.size == UNIT_BYTES

UNITS: Final = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tag_hash", ">i8")])
"""Many units as an array."""
assert UNITS.itemsize == UNIT_BYTES
