"""A few messages of each of several queues: asked for at once, and made into one batch.

Such a task costs what its requests and batches cost, not its bytes: one after the other, four
queues took 6 ms of a micro-batch's 110. What is not as simple as that, a gap or a message more or
less, is left to `pulling`, together with the answers that have come. Called by `pulling`.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pyspark_curlew.http.client import CurlewClient, OutOfRange, Pull, Pulled
from pyspark_curlew.options import SourceOptions
from pyspark_curlew.reading.planning import QueueRange
from pyspark_curlew.wire.columns import Origin, decode
from pyspark_curlew.wire.frame import Block, joined

Answers = Sequence[Pulled | OutOfRange | None]


def first_answers(
    ranges: Sequence[QueueRange], options: SourceOptions, client: CurlewClient
) -> Answers:
    """To a pull of each range, where there are several; None where it is still to be asked for.

    All of them together have at most `pull_max_bytes`.
    """
    is_simple = all(0 < each.size <= options.pull_max_messages for each in ranges)
    if len(ranges) == 1 or not is_simple:
        return [None] * len(ranges)
    size = max(1, options.pull_max_bytes // len(ranges))
    return client.pull_at_once(
        [Pull(r.topic, r.queue, r.start, r.end, r.size, size, options.filter_tags) for r in ranges]
    )


def rows_together(
    ranges: Sequence[QueueRange], answers: Answers, options: SourceOptions
) -> pa.RecordBatch | None:
    """One batch of all ranges; None unless each answer has just the messages of its range."""
    found = [
        answer
        for wanted, answer in zip(ranges, answers, strict=True)
        if isinstance(answer, Pulled) and answer.frame.records == wanted.size > 0
    ]
    blocks = [answer.frame for answer in found if isinstance(answer.frame, Block)]
    stores = {answer.store_id for answer in found}
    if len(blocks) != len(ranges) or len(stores) != 1:
        return None
    origins = [Origin(wanted.topic, wanted.queue, wanted.size) for wanted in ranges]
    batch, offsets = decode(
        joined(blocks),
        origins,
        stores.pop(),
        include_properties=options.include_properties,
        include_headers=options.include_headers,
    )
    expected = np.concatenate([np.arange(wanted.start, wanted.end) for wanted in ranges])
    return batch if np.array_equal(offsets, expected) else None
