"""RocketMQ's small files beside the log: `checkpoint` (4,096 bytes) and the sizes it expects. Pure.

    0   store time of the newest flushed message, ms        8
    8   the same for the consume queues                     8
    16  the same for the key index                          8
    24  (RocketMQ 5) flushed offset of the master           8
    32  (RocketMQ 5) confirmed physical offset              8
    40  zeros

We write it for RocketMQ and never read it: what our own opening trusts is `checkpoint.curlew`.
"""

import struct
from typing import Final, NamedTuple

CHECKPOINT_BYTES: Final = 4096
_CHECKPOINT: Final = struct.Struct(">qqqqq")


class RocketCheckpoint(NamedTuple):
    """The fields of RocketMQ's `checkpoint`."""

    log_time_ms: int
    queue_time_ms: int
    index_time_ms: int
    flushed_offset: int = 0
    confirmed_offset: int = 0


def encode_rocket_checkpoint(checkpoint: RocketCheckpoint) -> bytes:
    """All 4,096 bytes."""
    return _CHECKPOINT.pack(*checkpoint).ljust(CHECKPOINT_BYTES, b"\0")
