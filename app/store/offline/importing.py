"""Taking over a RocketMQ store: which of its topics and offsets are served, and copying its log.

The segments are copied byte for byte and served in place, so physical offsets, message ids, queue
offsets and everything that we do not understand stay what they were. `unchecked_end` in the meta
file says up to where records lack our checksum. Queues and key index are made from the log.
(docs/adr/0013)
"""

from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import Final

from app.domain.clock import Clock
from app.domain.errors import CurlewError
from app.domain.limits import Limits
from app.domain.names import DEFAULT_NAMESPACE, check_group, check_topic, namespace_of
from app.domain.positions import CommittedOffset, QueueOffset
from app.domain.settings import Permission, TopicType
from app.store import paths
from app.store.config import StoreConfig
from app.store.formats.files.state_file import (
    KIND_CHECKPOINT,
    KIND_META,
    Checkpoint,
    QueueState,
    StoreMeta,
    encode_state,
)
from app.store.fs.files import FileSystem, write_atomically
from app.store.fs.read_only_files import ReadOnlyFiles
from app.store.message_store import MessageStore
from app.store.offline.directory import locked
from app.store.offline.rocketmq_settings import (
    DEAD_LETTER_PREFIX,
    HALF_TOPIC,
    PERM_INHERIT,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SYSTEM_GROUP_PREFIX,
    is_system_topic,
)
from app.store.offline.survey import Survey
from app.store.write.worker import Turns

_COPY_BYTES: Final = 1 << 20
_ZEROS: Final = bytes(_COPY_BYTES)


class TargetNotEmpty(Exception):
    """There is a store where the import should go; the text says what to do."""


@dataclass(frozen=True, slots=True)
class ImportedTopic:
    """A topic to be entered into the metadata."""

    name: str
    queues: int
    type: TopicType
    messages: int
    permission: Permission = Permission.READ_WRITE
    write_queues: int | None = None


@dataclass(frozen=True, slots=True)
class LeftTopic:
    """A topic that stays in the log but is not served, and why."""

    name: str
    messages: int
    why: str


@dataclass(slots=True)
class ImportPlan:
    """What of a survey is served."""

    topics: list[ImportedTopic] = field(default_factory=list)
    left: list[LeftTopic] = field(default_factory=list)
    offsets: list[CommittedOffset] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def namespaces(self) -> list[str]:
        """Those that topics and offsets are in; RocketMQ writes `namespace%name`, as we do."""
        names = {topic.name for topic in self.topics} | {row.group for row in self.offsets}
        return sorted({namespace_of(name) for name in names} - {DEFAULT_NAMESPACE})


def plan_import(found: Survey, limits: Limits) -> ImportPlan:
    """Decide on topics and offsets. Pure."""
    plan = ImportPlan(notes=list(found.notes))
    names = set(found.topics) | {topic for topic, _ in found.queues}
    for name in sorted(names):
        why = _why_left(name, found)
        messages = sum(span.records for (topic, _), span in found.queues.items() if topic == name)
        if why is None:
            plan.topics.append(_topic(name, messages, found, limits, plan))
        elif messages:
            plan.left.append(LeftTopic(name, messages, why))
    _plan_offsets(found, plan)
    if found.other_compressed:
        plan.notes.append(f"{found.other_compressed} bodies are packed in an unknown way")
    if found.inner_batches:
        plan.notes.append(f"{found.inner_batches} records are batches and are given out whole")
    return plan


def _topic(
    name: str, messages: int, found: Survey, limits: Limits, plan: ImportPlan
) -> ImportedTopic:
    settings = found.topics.get(name)
    used = max((queue for topic, queue in found.queues if topic == name), default=-1) + 1
    queues = max(settings.queues if settings else 0, used, 1)
    if queues > limits.queues_per_topic_max:
        plan.notes.append(f"{name} has {queues} queues; {limits.queues_per_topic_max} are served")
        queues = limits.queues_per_topic_max
    kind = settings.message_type.lower() if settings else ""
    known = kind in {member.value for member in TopicType}
    topic = ImportedTopic(name, queues, TopicType(kind) if known else TopicType.NORMAL, messages)
    if settings is None:
        return topic
    written = settings.write_queues
    written = None if written is None or written >= queues else written
    return replace(topic, permission=settings.permission, write_queues=written)


def _why_left(name: str, found: Survey) -> str | None:
    """Why a topic is not served; None when it is."""
    if name == SCHEDULE_TOPIC:
        return f"delayed messages; {_pending_delayed(found)} of them were not delivered yet"
    if name == HALF_TOPIC:
        return "halves of transactions"
    if name.startswith(RETRY_PREFIX):
        group = name.removeprefix(RETRY_PREFIX)
        return f"to be delivered again; {_pending(found, name, group)} were not consumed yet"
    if name.startswith(DEAD_LETTER_PREFIX):
        return "dead letters"
    settings = found.topics.get(name)
    template = settings is not None and bool(settings.perm & PERM_INHERIT)
    has_queues = any(topic == name for topic, _ in found.queues)
    if is_system_topic(name) or (template and not has_queues):
        return "RocketMQ's own"
    try:
        check_topic(name)
    except CurlewError as error:
        return error.detail
    return None


def _pending_delayed(found: Survey) -> int:
    return sum(
        span.end - max(found.delay_offsets.get(queue_id + 1, 0), span.first)
        for (topic, queue_id), span in found.queues.items()
        if topic == SCHEDULE_TOPIC
    )


def _pending(found: Survey, topic: str, group: str) -> int:
    done = {o.queue_id: o.offset for o in found.offsets if (o.topic, o.group) == (topic, group)}
    return sum(
        max(span.end - max(done.get(queue_id, 0), span.first), 0)
        for (name, queue_id), span in found.queues.items()
        if name == topic
    )


def _plan_offsets(found: Survey, plan: ImportPlan) -> None:
    queues = {topic.name: topic.queues for topic in plan.topics}
    for row in found.offsets:
        if row.topic not in queues or row.group.startswith(SYSTEM_GROUP_PREFIX):
            continue
        place = f"{row.group} in {row.topic}/{row.queue_id}"
        try:
            check_group(row.group)
        except CurlewError as error:
            plan.notes.append(f"the offset of {place} is left out: {error.detail}")
            continue
        if namespace_of(row.group) != namespace_of(row.topic):
            plan.notes.append(f"the offset of {place} is left out: they are of two namespaces")
            continue
        if not 0 <= row.queue_id < queues[row.topic] or row.offset < 0:
            plan.notes.append(f"the offset of {place} is left out: {row.offset}")
            continue
        span = found.queues.get((row.topic, row.queue_id))
        end = span.end if span else 0
        if row.offset > end:
            plan.notes.append(f"the offset of {place} was {row.offset}, beyond the end; now {end}")
        offset = QueueOffset(min(row.offset, end))
        plan.offsets.append(CommittedOffset(row.group, row.topic, row.queue_id, offset))


def refuse_if_not_empty(target: FileSystem) -> None:
    """Raises `TargetNotEmpty` when a store, or a part of one, is there."""
    for path in (paths.META, paths.META_COPY, paths.CHECKPOINT):
        if target.exists(path):
            raise TargetNotEmpty("there is a store in the data directory; import into an empty one")
    if target.list(paths.COMMIT_LOG):
        raise TargetNotEmpty(
            "the data directory holds a commit log without meta file, perhaps of an import that "
            "was interrupted; remove its store/ or name an empty one"
        )


def import_log(
    found: Survey, source: ReadOnlyFiles, target: FileSystem, clock: Clock, turns: Turns
) -> None:
    """Copy the log, then open the store once, which makes queues and key index. Blocks.

    The meta file comes last: an import that is interrupted leaves nothing that a node would open.
    Raises `TargetNotEmpty`, `StoreLocked` or `OSError`.
    """
    config = StoreConfig()
    with locked(target):
        refuse_if_not_empty(target)
        target.make_directory(paths.COMMIT_LOG)
        for base in [base for base in found.bases if base <= found.end]:
            _copy_segment(source, target, base, found)
        target.sync_directory(paths.COMMIT_LOG)
        # Where queues begin: of those that have no message any more nothing but this tells where
        # they go on, and of the others it bounds the offset of the first record.
        begun = tuple(
            QueueState(topic, queue_id, first, first)
            for (topic, queue_id), span in sorted(found.queues.items())
            for first in (span.first if span.records else span.end,)
        )
        checkpoint = Checkpoint(
            dispatched_end=found.start,
            store_time_ms=found.newest_ms,
            clean=False,
            queues=begun,
            boot_id=target.boot_id(),
        )
        meta = StoreMeta(
            store_id=token_hex(4),
            segment_bytes=found.segment_bytes,
            queue_file_units=config.queue_file_units,
            index_slots=config.index_slots,
            index_entries=config.index_entries,
            created_ms=clock.now_ms(),
            unchecked_end=found.end,
        )
        write_atomically(target, paths.CHECKPOINT, encode_state(KIND_CHECKPOINT, checkpoint))
        for path in (paths.META_COPY, paths.META):
            write_atomically(target, path, encode_state(KIND_META, meta))
    MessageStore.open(target, config, clock, turns).close()


def _copy_segment(source: ReadOnlyFiles, target: FileSystem, base: int, found: Survey) -> None:
    """What stands before the end of the log; the rest of the segment is zeros."""
    wanted = min(found.segment_bytes, max(found.end - base, 0))
    reader = source.open(paths.segment(base))
    writer = target.open(paths.segment(base), create=True)
    try:
        writer.allocate(found.segment_bytes)
        for at in range(0, wanted, _COPY_BYTES):
            data = reader.pread(min(_COPY_BYTES, wanted - at), at)
            if data != _ZEROS:
                writer.pwritev([data], at)
        writer.sync()
    finally:
        reader.close()
        writer.close()
