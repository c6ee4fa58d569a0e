"""Shapes of a group's offsets as JSON: commits, resets, snapshots."""

from typing import Literal, Self

from pydantic import Field, model_validator

from app.api.control.schemas.member_schemas import QueueDocument
from app.api.control.schemas.names import TopicName
from app.api.control.schemas.schemas import (
    INT64_MAX,
    AnswerModel,
    CommitAnswer,
    Count,
    DryRunBody,
    DryRunMember,
    MergedModel,
    RequestModel,
)
from app.broker.offsets.offset_admin import OffsetChange, ResetRequest, ResetResult
from app.broker.offsets.offset_commits import Committer
from app.domain.positions import CommittedOffset, OffsetSnapshot


class CommitEntry(RequestModel):
    """Everything of the queue below `offset` is done."""

    queue_id: Count
    offset: Count


class CommitBody(RequestModel):
    """Offsets to commit. They never go back, unless `force` says so. A member says who it is and
    which generation it has put into effect."""

    offsets: list[CommitEntry] = Field(min_length=1)
    force: bool = False
    client_id: str | None = None
    generation: Count | None = None

    @model_validator(mode="after")
    def _check_member(self) -> Self:
        if (self.client_id is None) != (self.generation is None):
            raise ValueError("client_id and generation go together")
        if self.force and self.client_id is not None:
            raise ValueError("a member commits forward only; leave out force, or reset the offsets")
        return self

    @property
    def committer(self) -> Committer | None:
        if self.client_id is None or self.generation is None:
            return None
        return Committer(self.client_id, self.generation)


class NoRowsBody(RequestModel):
    """What a node sends to a shard of which a commit has no queues."""

    offsets: list[CommitEntry] = Field(max_length=0)


class RefusedCommitDocument(QueueDocument):
    """A row that was not committed, and why. With `RELAY_INTERRUPTED` it may have been."""

    offset: int = Field(description="what was to be committed")
    code: str = Field(examples=["SHARD_UNAVAILABLE"])
    detail: str


class CommitPartAnswer(CommitAnswer):
    """What is committed in the shards that answered, and the rows of the others."""

    partial: list[str] = Field(description="shards where it was not done", examples=[["c"]])
    refused: list[RefusedCommitDocument]


class ResetBody(DryRunBody):
    """Where to set the offsets. `dry_run` answers the table and changes nothing."""

    to: Literal["earliest", "latest", "timestamp", "offset", "shift"]
    timestamp_ms: Count | None = Field(default=None, description="for timestamp")
    offset: Count | None = Field(default=None, description="for offset")
    shift: int | None = Field(
        default=None,
        ge=-INT64_MAX,
        le=INT64_MAX,
        description="for shift: how many messages forward, or back when negative",
    )
    queues: list[Count] | None = Field(
        default=None, min_length=1, description="default: all queues"
    )

    @model_validator(mode="after")
    def _check_value(self) -> Self:
        given = {
            "timestamp": self.timestamp_ms,
            "offset": self.offset,
            "shift": self.shift,
        }
        names = {"timestamp": "timestamp_ms", "offset": "offset", "shift": "shift"}
        for target, value in given.items():
            if target == self.to and value is None:
                raise ValueError(f'"to": "{target}" needs {names[target]}')
            if target != self.to and value is not None:
                raise ValueError(f'{names[target]} goes with "to": "{target}"')
        return self

    def request(self, *, is_dry_run: bool) -> ResetRequest:
        value = self.timestamp_ms or self.offset or self.shift or 0
        queues = None if self.queues is None else frozenset(self.queues)
        return ResetRequest(self.to, value, queues, is_dry_run)


class ResetAllBody(ResetBody):
    """Where to set the offsets of several topics. `dry_run` answers the table and changes
    nothing."""

    topics: list[TopicName] | None = Field(
        default=None, min_length=1, description="default: all topics of the group"
    )


class RestoreBody(DryRunBody):
    """`dry_run` answers the table and changes nothing."""


class OffsetChangeDocument(AnswerModel):
    """One queue before and after. `before` is null where nothing was committed. `clamped`: what was
    asked for is not readable, and `after` is the nearest that is."""

    topic: str
    queue_id: int
    before: int | None
    after: int
    min_offset: int
    max_offset: int
    clamped: bool

    @classmethod
    def of(cls, change: OffsetChange) -> Self:
        return cls(
            topic=change.topic,
            queue_id=change.queue_id,
            before=change.before,
            after=change.after,
            min_offset=change.min_offset,
            max_offset=change.max_offset,
            clamped=change.is_clamped,
        )


class ResetAnswer(MergedModel):
    """The table before and after. With live members `generation` has risen and tells them."""

    group: str
    dry_run: bool
    generation: int
    offsets: list[OffsetChangeDocument]
    missing_topics: list[str]

    @classmethod
    def of(cls, group: str, dry_run: bool, result: ResetResult) -> Self:
        return cls(
            group=group,
            dry_run=dry_run,
            generation=result.generation,
            offsets=[OffsetChangeDocument.of(change) for change in result.changes],
            missing_topics=list(result.missing_topics),
        )


class TopicQueueOffset(QueueDocument):
    """A committed offset."""

    offset: int

    @classmethod
    def at(cls, row: CommittedOffset) -> Self:
        return cls(topic=row.topic, queue_id=row.queue_id, offset=row.offset)


class SnapshotDocument(AnswerModel):
    """The offsets of a group at one moment, under a name."""

    name: str
    created_ms: int
    offsets: list[TopicQueueOffset]

    @classmethod
    def of(cls, snapshot: OffsetSnapshot) -> Self:
        return cls(
            name=snapshot.name,
            created_ms=snapshot.created_ms,
            offsets=[TopicQueueOffset.at(row) for row in snapshot.offsets],
        )


class SnapshotAnswer(DryRunMember, SnapshotDocument):
    """A snapshot that was taken or forgotten, or would be."""


class SnapshotSummary(AnswerModel):
    """A snapshot without its offsets."""

    name: str
    created_ms: int
    queues: int


class SnapshotList(AnswerModel):
    """All snapshots of a group, by name."""

    group: str
    snapshots: list[SnapshotSummary]

    @classmethod
    def of(cls, group: str, snapshots: list[OffsetSnapshot]) -> Self:
        return cls(
            group=group,
            snapshots=[
                SnapshotSummary(
                    name=each.name, created_ms=each.created_ms, queues=len(each.offsets)
                )
                for each in snapshots
            ],
        )


class AllGroupOffsets(MergedModel):
    """What a group has committed, in all topics."""

    group: str
    offsets: list[TopicQueueOffset]
