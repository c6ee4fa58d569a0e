"""Positions of a stream, and their JSON form in Spark's checkpoint. Pure.

Version 1, as Spark stores it after each batch:

    {"fmt":"curlew","v":1,"topics":{"orders":{"0":500,"1":480}}}

`topics` holds the next offset to read of each queue. `from` holds where reading began for queues
that the start of the batch did not know: all of them in the first batch, a new queue later. Spark
asks for the initial offset again whenever it has to plan the first batch anew, and `latest` has
moved on by then; with `from` in the stored end, the batch is the same each time it is planned.
`fresh` marks an initial offset, which Spark never stores as an end. `generations` holds a number
for each topic that changes when it is deleted and made anew; early checkpoints have none. `tasks`
holds by which options the batch that ends here was cut into tasks: a batch that is repeated keeps
its tasks, by whose numbers the sink knows what it has sent, though the options were changed.

Invariant: the text is a function of the value (names sorted, queues in numeric order), since Spark
compares offsets as text. Called by `stream`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from pyspark_curlew.errors import OffsetVersionUnknown

FORMAT: Final = "curlew"
VERSION: Final = 1


class TopicQueue(NamedTuple):
    """One queue of one topic."""

    topic: str
    queue: int


class TaskLimits(NamedTuple):
    """How a batch is cut into tasks: the options `maxRecordsPerPartition`, `minRecordsPerPartition`
    and `minPartitions`."""

    max_records: int
    """0: a queue's range is never split."""
    min_records: int
    """Small ranges of several queues share a task up to so many messages; 0: never."""
    min_tasks: int


Positions: TypeAlias = Mapping[TopicQueue, int]
"""Next offset to read by queue."""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """A point in the stream between two batches."""

    positions: Positions
    begun_at: Positions = field(default_factory=dict)
    """Where reading began, for queues that the preceding offset does not hold."""
    fresh: bool = False
    generations: Mapping[str, int] = field(default_factory=dict)
    tasks: TaskLimits | None = None
    """Of the batch that ends here; None in early checkpoints and where no batch ends."""

    def to_json(self) -> dict[str, object]:
        """The form that Spark stores; see the module's text."""
        document: dict[str, object] = {"fmt": FORMAT, "v": VERSION}
        if self.fresh:
            document["fresh"] = True
        document["topics"] = nested(self.positions)
        if self.begun_at:
            document["from"] = nested(self.begun_at)
        if self.generations:
            document["generations"] = dict(sorted(self.generations.items()))
        if self.tasks is not None:
            document["tasks"] = self.tasks._asdict()
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, object]) -> "StreamOffset":
        """Read what `to_json` made; raise `OffsetVersionUnknown` for anything else."""
        if document.get("fmt") != FORMAT:
            raise OffsetVersionUnknown("the checkpoint holds offsets of another source")
        if document.get("v") != VERSION:
            raise OffsetVersionUnknown(
                f"the checkpoint holds offsets of version {document.get('v')!r}; this connector"
                f" reads version {VERSION}; use the connector version that wrote it, or a newer one"
            )
        return cls(
            positions=positions_of(document.get("topics")),
            begun_at=positions_of(document.get("from", {})),
            fresh=document.get("fresh") is True,
            generations=_numbers(document.get("generations", {})),
            tasks=_tasks(document.get("tasks")),
        )


def nested(positions: Positions) -> dict[str, dict[str, int]]:
    """Topic to queue to number, as JSON has it."""
    topics: dict[str, dict[str, int]] = {}
    for key in sorted(positions):
        topics.setdefault(key.topic, {})[str(key.queue)] = positions[key]
    return topics


def _numbers(found: object) -> dict[str, int]:
    try:
        assert isinstance(found, Mapping)
        return {str(topic): int(number) for topic, number in found.items()}
    except (AssertionError, TypeError, ValueError):
        raise OffsetVersionUnknown(
            "the checkpoint's offset has 'generations' of another form"
        ) from None


def _tasks(found: object) -> TaskLimits | None:
    if found is None:
        return None
    try:
        assert isinstance(found, Mapping)
        return TaskLimits(*(int(found[name]) for name in TaskLimits._fields))
    except (AssertionError, KeyError, TypeError, ValueError):
        raise OffsetVersionUnknown("the checkpoint's offset has 'tasks' of another form") from None


def positions_of(topics: object) -> dict[TopicQueue, int]:
    """The opposite of `nested`; raises `OffsetVersionUnknown`."""
    if not isinstance(topics, Mapping):
        raise OffsetVersionUnknown("the checkpoint's offset has no 'topics'")
    positions: dict[TopicQueue, int] = {}
    try:
        for topic, queues in topics.items():
            for queue, offset in queues.items():
                positions[TopicQueue(str(topic), int(queue))] = int(offset)
    except (AttributeError, TypeError, ValueError):
        raise OffsetVersionUnknown(
            "the checkpoint's offset has 'topics' or 'from' of another form"
        ) from None
    return positions
