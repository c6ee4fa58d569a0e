"""Dead letters of a group: look at them, deliver them again, remove them.

A dead letter is a record of queue 0 of `%DLQ%group`. Removing one is an entry of a journal, since
the log takes nothing back; redriving writes the copy and that entry as one step, so that a letter
is redriven exactly once however often the node is killed. Event loop only.
"""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import msgspec

from app.broker.context import Context
from app.broker.filters.filters import parse_filter, properties_of
from app.broker.jobs import Job, Jobs
from app.broker.journal.append_future import AppendFuture
from app.broker.journal.cold_reads import ColdReads
from app.broker.journal.journal import Journal
from app.broker.ports import Topic
from app.broker.progress.ack_set import AckSet
from app.broker.retries_and_dead_letters import (
    Origin,
    as_original,
    fitted,
    origin_of,
    plain_copy,
    reason_of,
    retry_copy,
)
from app.broker.topic_lookup import find_topic, queue_of_key_here
from app.broker.tracing.message_trace import MessageTrace
from app.broker.tracing.trace_notes import TraceKind
from app.domain.access.standing import Visible
from app.domain.errors import CurlewError, GroupNotFound, InvalidRequest
from app.domain.handles.page_sizes import check_page_size
from app.domain.limits import MIB
from app.domain.message import Message, StoredMessage
from app.domain.names import (
    DEAD_LETTER_STATE_TOPIC,
    check_group,
    dead_letter_topic,
    retry_topic,
)
from app.domain.positions import FlushMode
from app.store import ReadResult, StepPart

QUEUE: Final = 0
STEP_MESSAGES: Final = 100
"""Letters that one step redrives."""

_READ_MESSAGES: Final = 512
_READ_BYTES: Final = 4 * MIB
_RUNS_A_CHUNK: Final = 10_000
_GROUPS_A_TURN: Final = 1_000
"""Groups whose letters one turn of the event loop counts; some milliseconds."""

_Run = tuple[int, int]


class DeadLetter(NamedTuple):
    """One dead letter; `offset` names it within its group."""

    offset: int
    message: StoredMessage
    origin: Origin
    reason: str | None
    attempts: int
    dead_since_ms: int


@dataclass(frozen=True, slots=True)
class Selection:
    """Which letters: all that meet every condition that is given. Nothing given: all of them."""

    offsets: frozenset[int] | None = None
    message_ids: frozenset[str] | None = None
    """Ids of the originals."""
    topic: str | None = None
    """The original topic."""
    filter: str | None = None
    reason: str | None = None
    """A part of the reason."""
    from_ms: int | None = None
    """Dead since this time or later."""
    until_ms: int | None = None
    """Dead before this time."""
    readable: Visible | None = None
    """Whose original topic is one of these, asked of each letter; None: any."""


class DeadLetterPage(NamedTuple):
    """Letters in the order of their death. `next_offset` is None at the end."""

    letters: list[DeadLetter]
    next_offset: int | None
    scanned: int


class DeadLetterSummary(NamedTuple):
    """How many letters a group has; `oldest_ms` is None when there are none."""

    messages: int
    oldest_ms: int | None


class RedrivePlan(NamedTuple):
    """What a redrive would do: letters by the topic that they would go to, and by the reason why
    they would not."""

    matched: int
    by_target: dict[str, int]
    skipped: dict[tuple[str, str], int]
    """By the topic that it is about, and the reason."""


class _Removals:
    """Which letters of each group are removed. The journal's state."""

    def __init__(self) -> None:
        self.by_group: dict[str, AckSet] = {}

    def of(self, group: str) -> AckSet:
        return self.by_group.setdefault(group, AckSet(0))

    def clear(self) -> None:
        self.by_group.clear()

    def load(self, chunk: bytes) -> None:
        if chunk:
            self.apply(chunk)

    def apply(self, entry: bytes) -> None:
        group, runs = _decode(entry)
        progress = self.of(group)
        for start, end in runs:
            progress.ack_range(start, end)

    def dump(self) -> Iterable[bytes]:
        for group, progress in list(self.by_group.items()):
            removed = progress.copy()
            runs: list[_Run] = [(0, removed.committed)]
            for run in removed.runs():
                runs.append(run)
                if len(runs) >= _RUNS_A_CHUNK:
                    yield _encode((group, runs))
                    runs = []
            if runs:
                yield _encode((group, runs))


_decode: Final = msgspec.msgpack.Decoder(tuple[str, list[_Run]]).decode
_encode: Final = msgspec.msgpack.Encoder().encode


class DeadLetters:
    """The dead letters of all groups on this node. `start` before use."""

    def __init__(self, context: Context, operations: Jobs, message_trace: MessageTrace) -> None:
        self._store = context.store
        self._metadata = context.metadata
        self._limits = context.limits
        self._operations = operations
        self._readers = context.readers
        self._message_trace = message_trace
        self._removals = _Removals()
        self.journal = Journal(
            context.store, DEAD_LETTER_STATE_TOPIC, self._removals, context.readers
        )
        self._turns = 0

    async def start(self) -> None:
        """Read which letters were removed."""
        await self.journal.replay()

    # --- looking

    def count(self, group: str) -> int:
        """Letters that are there now, including those that cannot be read any more for damage."""
        low, high = self._bounds(group)
        runs = self._removals.of(group).runs()
        return high - low - sum(end - max(start, low) for start, end in runs if end > low)

    async def count_all(self, groups: Sequence[str]) -> int:
        """Letters of all these groups; of many groups, counted in several turns."""
        total = 0
        for first in range(0, len(groups), _GROUPS_A_TURN):
            if first:
                await asyncio.sleep(0)
            total += sum(self.count(group) for group in groups[first : first + _GROUPS_A_TURN])
        return total

    async def groups_with_some(self, groups: Sequence[str]) -> frozenset[str]:
        """Those of the groups that have letters; of many groups, looked at in several turns."""
        found: set[str] = set()
        for first in range(0, len(groups), _GROUPS_A_TURN):
            if first:
                await asyncio.sleep(0)
            turn = groups[first : first + _GROUPS_A_TURN]
            found.update(group for group in turn if self.count(group))
        return frozenset(found)

    async def summaries(self, groups: Sequence[str]) -> dict[str, DeadLetterSummary]:
        """What `summary` says of each, without groups that are gone or have no letter."""
        found: dict[str, DeadLetterSummary] = {}
        for group in groups:
            await asyncio.sleep(0)
            if group in self._metadata.snapshot.groups:
                summary = await self.summary(group)
                if summary.messages:
                    found[group] = summary
        return found

    async def summary(self, group: str) -> DeadLetterSummary:
        """How many letters there are, and since when. Raises `GroupNotFound`."""
        self._check_group(group)
        async for batch in self._walk(group, Selection(), ColdReads(self._readers)):
            for letter in batch:
                return DeadLetterSummary(self.count(group), letter.dead_since_ms)
        return DeadLetterSummary(0, None)

    async def browse(
        self, group: str, selection: Selection, *, offset: int = 0, max_letters: int = 100
    ) -> DeadLetterPage:
        """A page of letters from `offset` on, after a bounded amount of work.

        It ends early when the bodies come to `receive_bytes_max`. Raises `GroupNotFound`,
        `IllegalFilter`, `IllegalPage` or `InvalidRequest`.
        """
        self._check_group(group)
        check_page_size(max_letters, self._limits.page_size_max)
        choice = _Choice(selection)
        low, high = self._bounds(group)
        at = start = min(max(low, offset), high)
        letters: list[DeadLetter] = []
        end = min(high, start + self._limits.dead_letters_scanned_max)
        bytes_left = self._limits.receive_bytes_max
        while at < end and len(letters) < max_letters and bytes_left > 0:
            read = await self._read(group, at, end, ColdReads(self._readers))
            for letter in self._letters(group, read):
                if choice.takes(letter):
                    letters.append(letter)
                    bytes_left -= len(letter.message.body)
                    if len(letters) == max_letters or bytes_left <= 0:
                        at = letter.offset + 1
                        break
            else:
                at = max(read.next_offset, at + 1)
        return DeadLetterPage(letters, at if at < high else None, at - start)

    async def plan_redrive(
        self,
        group: str,
        selection: Selection,
        *,
        to_topic: str | None = None,
        rate_per_s: float | None = None,
        owner: str | None = None,
    ) -> RedrivePlan:
        """What `redrive` would do. Raises as it does."""
        self._check_redrive(group, selection, to_topic, rate_per_s)
        self._operations.check_room(owner)
        return await self.plan(group, selection, to_topic=to_topic)

    async def plan(
        self, group: str, selection: Selection, *, to_topic: str | None = None
    ) -> RedrivePlan:
        """Letters that are chosen, and where they would go."""
        self._check_target(group, to_topic)
        matched, targets, skipped = 0, Counter[str](), Counter[tuple[str, str]]()
        async for batch in self._walk(group, selection, None):
            for letter in batch:
                matched += 1
                obstacle = self._obstacle(letter, to_topic)
                if obstacle is None:
                    targets[to_topic or letter.origin.topic] += 1
                else:
                    skipped[to_topic or letter.origin.topic, obstacle] += 1
        return RedrivePlan(matched, dict(targets), dict(skipped))

    # --- redriving and removing

    def redrive(
        self,
        group: str,
        selection: Selection,
        *,
        to_topic: str | None = None,
        rate_per_s: float | None = None,
        check: Callable[[], None] = lambda: None,
        owner: str | None = None,
        name: str | None = None,
    ) -> Job:
        """Deliver letters again, beside the request; the letters are removed one step at a time.

        Without `to_topic` a letter goes back to this group alone, through its retry topic of the
        original topic, with its attempts counted anew. Raises `GroupNotFound`, `TopicNotFound`,
        `IllegalFilter`, `InvalidRequest` or `TooManyRequests`. `check` is asked before each step,
        and ends the work by what it raises; `owner` is the principal that the job belongs to,
        `name` its name where it is part of a larger one.
        """
        self._check_redrive(group, selection, to_topic, rate_per_s)
        total = len(selection.offsets) if selection.offsets is not None else self.count(group)
        work = partial(self._redrive, group, selection, to_topic, rate_per_s, check)
        return self._operations.start("redrive", total, work, owner=owner, group=group, name=name)

    def _check_redrive(
        self, group: str, selection: Selection, to_topic: str | None, rate_per_s: float | None
    ) -> None:
        self._check_target(group, to_topic)
        _Choice(selection)
        if rate_per_s is not None and not 0 < rate_per_s < math.inf:
            raise InvalidRequest("rate_per_s must be a number over 0", pointer="/rate_per_s")

    async def purge(self, group: str, selection: Selection) -> int:
        """Remove letters for ever; return how many. Raises `GroupNotFound` or `IllegalFilter`."""
        self._check_group(group)
        removed = 0
        async for batch in self._walk(group, selection, None):
            removed += len(batch)
            await self._remove(group, [letter.offset for letter in batch], ())
        return removed

    def forget(self, group: str) -> None:
        """The group was deleted, and its letters with it."""
        high = self._store.bounds(dead_letter_topic(group), QUEUE).max_offset
        if high:
            self._removals.of(group).skip_to(high)

    async def _redrive(
        self,
        group: str,
        selection: Selection,
        to_topic: str | None,
        rate_per_s: float | None,
        check: Callable[[], None],
        job: Job,
    ) -> None:
        step = STEP_MESSAGES if rate_per_s is None else max(1, min(STEP_MESSAGES, int(rate_per_s)))
        async for batch in self._walk(group, selection, None):
            for first in range(0, len(batch), step):
                if job.is_cancelled:
                    return
                check()
                chosen = self._still_there(group, batch[first : first + step])
                readable = selection.readable
                able = [
                    each
                    for each in chosen
                    if self._obstacle(each, to_topic) is None
                    and (readable is None or readable(each.origin.topic))
                ]
                job.skipped += len(chosen) - len(able)
                parts = [self._part(group, letter, to_topic) for letter in able]
                await self._remove(group, [letter.offset for letter in able], parts)
                self._note(group, able, to_topic)
                job.done += len(able)
                if rate_per_s is not None and able:
                    await job.pause(len(able) / rate_per_s)
        job.total = job.done + job.skipped

    def _note(self, group: str, letters: Iterable[DeadLetter], to_topic: str | None) -> None:
        for letter in letters:
            origin = letter.origin
            self._message_trace.note(
                TraceKind.REDRIVEN,
                origin.topic,
                (origin.topic, origin.queue_id),
                (origin.queue_offset,),
                group=group,
                detail=None if to_topic is None else f"to topic {to_topic}",
            )

    def _part(self, group: str, letter: DeadLetter, to_topic: str | None) -> StepPart:
        message = letter.message
        if to_topic is None:
            copy = retry_copy(message, 0, "redriven")
            return StepPart(retry_topic(group, letter.origin.topic), 0, [copy])
        view = find_topic(self._metadata, to_topic)
        self._turns += 1
        queues, key = view.writable_here, message.sharding_key
        of_key = None if key is None else queue_of_key_here(view, key)
        queue_id = queues[self._turns % len(queues)] if of_key is None else of_key
        return StepPart(to_topic, queue_id, [fitted(plain_copy(message))], view.generation)

    async def _remove(self, group: str, offsets: Sequence[int], parts: Sequence[StepPart]) -> None:
        """Remove letters, and write what takes their place, as one step."""
        if not offsets:
            return
        runs = _runs_of(offsets)
        entry = self.journal.entry(_encode((group, runs)))
        confirmation = AppendFuture()
        progress = self._removals.of(group)

        def done(error: CurlewError | None) -> None:
            if error is not None:
                progress.reopen(offsets)
            confirmation.done(error)

        self._store.append_step((*_merged(parts), entry), FlushMode.SYNC, done)
        for start, end in runs:
            progress.ack_range(start, end)
        await confirmation.wait()
        low, _ = self._bounds(group)
        self._store.trim(dead_letter_topic(group), QUEUE, low)

    # --- reading

    async def _walk(
        self, group: str, selection: Selection, disk: ColdReads | None
    ) -> AsyncIterator[list[DeadLetter]]:
        """All letters that are there now and chosen, a batch at a time."""
        self._check_group(group)
        choice = _Choice(selection)
        at, end = self._bounds(group)
        if selection.offsets is not None:
            at = max(at, min(selection.offsets, default=end))
            end = min(end, max(selection.offsets, default=-1) + 1)
        while at < end:
            read = await self._read(group, at, end, disk or ColdReads(self._readers))
            batch = [letter for letter in self._letters(group, read) if choice.takes(letter)]
            if batch:
                yield batch
            at = max(read.next_offset, at + 1)

    async def _read(self, group: str, at: int, end: int, disk: ColdReads) -> ReadResult:
        topic = dead_letter_topic(group)
        at = max(at, self._store.bounds(topic, QUEUE).min_offset)

        def read(wait_for_disk: bool) -> ReadResult:
            return self._store.read(
                topic,
                QUEUE,
                at,
                max_messages=_READ_MESSAGES,
                max_bytes=_READ_BYTES,
                end_offset=end,
                wait_for_disk=wait_for_disk,
            )

        return await disk.run(read)

    def _letters(self, group: str, read: ReadResult) -> list[DeadLetter]:
        removed = self._removals.of(group)
        letters: list[DeadLetter] = []
        for record in read.records:
            message = self._store.decode(record)
            if not removed.is_acked(message.queue_offset):
                letters.append(_letter(message))
        return letters

    def _still_there(self, group: str, letters: Iterable[DeadLetter]) -> list[DeadLetter]:
        """Leave out what another redrive or purge has removed since it was read."""
        removed = self._removals.of(group)
        return [letter for letter in letters if not removed.is_acked(letter.offset)]

    def _bounds(self, group: str) -> tuple[int, int]:
        low, high = self._store.bounds(dead_letter_topic(group), QUEUE)
        return max(low, min(self._removals.of(group).committed, high)), high

    # --- checks

    def _check_group(self, group: str) -> None:
        if group not in self._metadata.snapshot.groups:
            check_group(group)
            raise GroupNotFound(
                f"consumer group {group!r} does not exist", hint="see GET /v1/groups"
            )

    def _check_target(self, group: str, to_topic: str | None) -> None:
        self._check_group(group)
        if to_topic is not None:
            find_topic(self._metadata, to_topic)

    def _obstacle(self, letter: DeadLetter, to_topic: str | None) -> str | None:
        """Why a letter cannot go where it should."""
        topic = to_topic or letter.origin.topic
        view = self._metadata.snapshot.topics.get(topic)
        if view is None:
            return f"topic {topic!r} does not exist"
        origin = letter.origin
        is_later = view.created_ms > origin.store_time_ms
        is_other = origin.generation != view.generation if origin.generation else is_later
        if to_topic is None and is_other:
            return f"topic {topic!r} was deleted and made again since; name it with to_topic"
        if to_topic is not None and not _has_queue_for(letter.message, view):
            return f"no queue of topic {topic!r} that it could go to is in the letter's shard"
        return None


class _Choice:
    """A selection, ready to be asked. Raises `IllegalFilter` when it is made."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._filter = parse_filter(selection.filter)

    def takes(self, letter: DeadLetter) -> bool:
        wanted = self._selection
        return (
            (wanted.offsets is None or letter.offset in wanted.offsets)
            and (wanted.message_ids is None or letter.origin.message_id in wanted.message_ids)
            and (wanted.readable is None or wanted.readable(letter.origin.topic))
            and (wanted.topic is None or letter.origin.topic == wanted.topic)
            and (wanted.reason is None or wanted.reason in (letter.reason or ""))
            and (wanted.from_ms is None or letter.dead_since_ms >= wanted.from_ms)
            and (wanted.until_ms is None or letter.dead_since_ms < wanted.until_ms)
            and (self._filter is None or self._filter.matches(properties_of(letter.message)))
        )


def _has_queue_for(message: StoredMessage, topic: Topic) -> bool:
    """Whether this node's shard has one: letter and copy are changed in one step."""
    key = message.sharding_key
    if key is None:
        return bool(topic.writable_here)
    return queue_of_key_here(topic, key) is not None


def _letter(message: StoredMessage) -> DeadLetter:
    origin = origin_of(message)
    return DeadLetter(
        message.queue_offset,
        as_original(message),
        origin,
        reason_of(message),
        message.reconsume_times,
        message.store_time_ms,
    )


def _runs_of(offsets: Iterable[int]) -> list[_Run]:
    """Half-open ranges that hold exactly the offsets."""
    runs: list[_Run] = []
    for offset in sorted(offsets):
        if runs and runs[-1][1] == offset:
            runs[-1] = (runs[-1][0], offset + 1)
        else:
            runs.append((offset, offset + 1))
    return runs


def _merged(parts: Iterable[StepPart]) -> list[StepPart]:
    """One part for each queue, in the order of first appearance."""
    messages: dict[tuple[str, int, int], list[Message]] = {}
    for part in parts:
        key = part.topic, part.queue_id, part.generation
        messages.setdefault(key, []).extend(part.messages)
    return [StepPart(*key[:2], each, key[2]) for key, each in messages.items()]
