"""What the node says about dead letters."""

from typing import NotRequired, TypedDict

from curlew_client.documents.messages import MessageView


class DeadLetterSummary(TypedDict):
    """How many dead letters a group has; `oldest_ms` is null when there are none."""

    group: str
    messages: int
    oldest_ms: int | None
    partial: NotRequired[list[str]]


class DeadLetterView(MessageView):
    """A dead letter: the original message in its place, and what became of it. `offset`
    names the letter within its group, on a cluster within the `shard` that has it.
    `attempts` counts the deliveries that failed."""

    offset: int
    attempts: int
    dead_since_ms: int
    reason: NotRequired[str]
    shard: NotRequired[str]


class DeadLetterList(TypedDict):
    """A page of dead letters, the oldest first; `next_cursor` is absent at the end.
    `scanned` counts the letters that were looked at, whether the conditions chose them or
    not."""

    messages: list[DeadLetterView]
    scanned: int
    next_cursor: NotRequired[str]
    partial: NotRequired[list[str]]


class PurgeAnswer(TypedDict):
    """How many letters were removed, or would be."""

    removed: int
    dry_run: bool
    partial: NotRequired[list[str]]


class LettersToPurge(TypedDict, total=False):
    """What to remove for ever."""

    all: bool
    offsets: list[int] | None
    message_ids: list[str] | None
    topic: str | None
    filter: str | None
    reason: str | None
    from_ms: int | None
    until_ms: int | None
    shard: str | None


class RedrivePlan(TypedDict):
    """What would happen: letters by target topic, and by the reason why they would be
    left."""

    matched: int
    by_target: dict[str, int]
    skipped: dict[str, int]
    dry_run: bool
    partial: NotRequired[list[str]]


class LettersToRedrive(LettersToPurge, total=False):
    """What to deliver again, where, and how fast."""

    to_topic: str | None
    rate_per_s: float | None
