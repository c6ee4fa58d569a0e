"""The block that begins a term: a lone record of a queue that nobody reads. Pure.

Its place is known before it is written: who leads has the term in its history by then.
"""

from typing import Final

import msgspec

from app.domain.message import Message
from app.domain.names import TERMS_TOPIC
from app.store.formats.record.record import RECORD_OVERHEAD_BYTES, encode_properties
from app.store.log.commit_log import AppendCursor
from app.store.write.appender import StepPart

QUEUE: Final = 0


def term_block(epoch: int, grant: int) -> StepPart:
    """The record, as a step to append."""
    return StepPart(TERMS_TOPIC, QUEUE, (Message(msgspec.msgpack.encode((epoch, grant))),))


def end_behind(block: StepPart, log_end: int, segment_bytes: int) -> int:
    """Where the block ends that is appended next to a log that ends at `log_end`."""
    (message,) = block.messages
    size = RECORD_OVERHEAD_BYTES + len(message.body) + len(block.topic.encode())
    size += len(encode_properties(message))
    return AppendCursor(log_end, segment_bytes).place([size]).end
