"""What a block writes, from where its records are placed. Pure; any thread."""

from collections.abc import Sequence

from app.store.formats.frame.batch_frame import RequestFrame
from app.store.fs.files import Buffer
from app.store.log.commit_log import Placement
from app.store.write.blocks import Write


def start_of(write: Write) -> int:
    """Where it begins: writes go to the file in this order."""
    return write[0]


def writes_of(placement: Placement, records: Sequence[bytes]) -> list[Write]:
    """The writes of records that were placed, and of the ends of segments between them."""
    writes: list[Write] = [(at, [record]) for at, record in placement.closing]
    return writes + [(s.start, list(records[s.first : s.end])) for s in placement.stretches]


def writes_of_frame(
    placement: Placement, before: Sequence[bytes], frame: RequestFrame
) -> list[Write]:
    """The writes of a frame whose records follow those of `before`."""
    view = frame.records
    lead = len(before)
    writes: list[Write] = [(at, [record]) for at, record in placement.closing]
    for stretch in placement.stretches:
        buffers: list[Buffer] = [*before[stretch.first : stretch.end]]
        first, end = max(stretch.first - lead, 0), stretch.end - lead
        if end > first:
            behind = int(frame.positions[end]) if end < frame.count else len(view)
            buffers.append(view[int(frame.positions[first]) : behind])
        if buffers:
            writes.append((stretch.start, buffers))
    return writes
