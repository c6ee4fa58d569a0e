"""What `curlew store` prints: lines for people, JSON for programs. Pure text, no disk."""

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from app.store.log.log_scan import Damage
from app.store.offline.backup import Backup
from app.store.offline.directory import Problem
from app.store.offline.dump import DumpedRecord
from app.store.offline.importing import ImportPlan
from app.store.offline.measuring import SIZE_BOUNDS, Statistics
from app.store.offline.repair import Repair
from app.store.offline.survey import Survey
from app.store.offline.verification import NOT_READ, Verification

PREFIX_BYTES: Final = 32
_UNITS: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def as_json(document: object) -> str:
    """One line of JSON."""
    return msgspec.json.encode(document).decode()


def as_bytes(size: int) -> str:
    """`300 B`, `1.5 MiB`."""
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"


def as_time(time_ms: int | None) -> str:
    """RFC 3339 with milliseconds, UTC; `-` for none."""
    if time_ms is None:
        return "-"
    whole = datetime.fromtimestamp(time_ms // 1000, UTC)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z"


def place(problem: Problem) -> str:
    """The messages that a problem is about; empty when unknown."""
    if problem.topic is None:
        return ""
    queue = f"{problem.topic}/{problem.queue_id}"
    if problem.queue_offset is None or problem.queue_end is None:
        return queue
    if problem.queue_end - problem.queue_offset == 1:
        return f"{queue} offset {problem.queue_offset}"
    return f"{queue} offsets {problem.queue_offset} to {problem.queue_end - 1}"


def problem_line(problem: Problem) -> str:
    """`queue  consumequeue/orders/0/0000… byte 40: zeros (orders/0 offset 2)`."""
    about = place(problem)
    tail = f" ({about})" if about else ""
    return f"{problem.kind:8} {problem.file} byte {problem.position}: {problem.what}{tail}"


def verification_lines(found: Verification) -> Iterator[str]:
    """What was read, what is damaged."""
    yield (
        f"{found.records} records ({as_bytes(found.record_bytes)}) in {found.segments} segments, "
        f"{found.queues} queues; log from {found.log_start} to {found.log_end}"
    )
    yield from (f"note     {note}" for note in found.notes)
    yield f"not read: {NOT_READ}"
    yield from map(problem_line, found.problems)
    count = len(found.problems)
    yield f"{count} problem{'s' if count != 1 else ''} found" if count else "no damage found"


def backup_lines(done: Backup, target: Path) -> Iterator[str]:
    """What the copy has, and what is wrong with it."""
    yield f"copied to {target}: the log from {done.start} to {done.end}"
    yield from verification_lines(done.verification)


def backup_json(done: Backup) -> dict[str, object]:
    """The same for programs."""
    return {
        "start": done.start,
        "end": done.end,
        "copy": verification_json(done.verification),
    }


def verification_json(found: Verification) -> dict[str, object]:
    """The same for programs."""
    return {
        "clean": not found.problems,
        "segments": found.segments,
        "records": found.records,
        "record_bytes": found.record_bytes,
        "queues": found.queues,
        "log_start": found.log_start,
        "log_end": found.log_end,
        "problems": found.problems,
        "notes": found.notes,
        "not_read": NOT_READ,
    }


def repair_lines(done: Repair, *, dry_run: bool) -> Iterator[str]:
    """What was wrong, what was done, what is left."""
    yield from map(problem_line, done.before.problems)
    if not done.actions:
        unreadable = bool(done.before.problems)
        yield "nothing that could be repaired" if unreadable else "no damage found"
        return
    yield from (f"{'would' if dry_run else 'did'}: {action}" for action in done.actions)
    if done.after is not None:
        yield "afterwards:"
        yield from (f"  {line}" for line in verification_lines(done.after))


def repair_json(done: Repair, *, dry_run: bool) -> dict[str, object]:
    """The same for programs."""
    return {
        "dry_run": dry_run,
        "before": verification_json(done.before),
        "actions": done.actions,
        "after": verification_json(done.after) if done.after else None,
    }


def statistics_lines(found: Statistics) -> Iterator[str]:
    """Figures, one line for each queue."""
    stop = "clean stop" if found.clean else "open, or not stopped in order"
    yield f"store {found.store_id}, as of its last checkpoint ({stop})"
    yield (
        f"{found.records} records, {as_bytes(found.record_bytes)}, in {found.segments} segments "
        f"of {as_bytes(found.segment_bytes)}; log from {found.log_start} to {found.log_end}"
    )
    yield f"stored from {as_time(found.oldest_ms)} to {as_time(found.newest_ms)}"
    yield f"{found.topics} topics, {len(found.queues)} queues"
    for queue in found.queues:
        name = f"{queue.topic}/{queue.queue_id}"
        span = f"{queue.min_offset} to {queue.max_offset}"
        yield f"  {name:40} {span:>24} {as_bytes(queue.record_bytes):>12}"
    yield "record sizes"
    for label, count in zip(_size_labels(), found.sizes, strict=True):
        if count:
            yield f"  {label:>12} {count:>12}"


def _size_labels() -> list[str]:
    return [f"< {as_bytes(bound)}" for bound in SIZE_BOUNDS] + [f">= {as_bytes(SIZE_BOUNDS[-1])}"]


def statistics_json(found: Statistics) -> dict[str, object]:
    """The same for programs."""
    document: dict[str, object] = msgspec.to_builtins(found)
    document["topics"] = found.topics
    document["sizes"] = [
        {"below": bound, "records": count}
        for bound, count in zip([*SIZE_BOUNDS, None], found.sizes, strict=True)
    ]
    return document


def dump_line(item: DumpedRecord | Damage, *, bodies: bool) -> str:
    """One record, or the damage between two."""
    if isinstance(item, Damage):
        return f"{item.start} DAMAGED up to {item.end}: {item.reason}"
    message = item.message
    body = message.body if bodies else message.body[:PREFIX_BYTES]
    more = "" if len(body) == len(message.body) else "..."
    words = [
        str(item.physical_offset),
        f"{message.topic}/{message.queue_id}@{message.queue_offset}",
        as_time(message.store_time_ms),
        f"id={message.message_id}",
        *([f"tag={message.tag}"] if message.tag else []),
        *([f"keys={','.join(message.keys)}"] if message.keys else []),
        *([] if item.in_queue else ["(in no queue)"]),
        f"{len(message.body)} B",
        f"{body.decode(errors='backslashreplace')!r}{more}",
    ]
    return " ".join(words)


def dump_json(item: DumpedRecord | Damage, *, bodies: bool) -> dict[str, object]:
    """The same for programs; the body in Base64, whole or its beginning."""
    if isinstance(item, Damage):
        return {"damage": {"start": item.start, "end": item.end, "reason": item.reason}}
    message: dict[str, object] = msgspec.to_builtins(item.message)
    body = item.message.body
    message["body_bytes"] = len(body)
    message["body"] = base64.b64encode(body if bodies else body[:PREFIX_BYTES]).decode()
    return {**message, "size": item.size, "in_queue": item.in_queue, "body_whole": bodies}


def import_lines(found: Survey, plan: ImportPlan) -> Iterator[str]:
    """What was taken over, and what was not."""
    yield (
        f"{found.records} records from {as_time(found.oldest_ms)} to {as_time(found.newest_ms)}, "
        f"log from {found.start} to {found.end}, segments of {as_bytes(found.segment_bytes)}"
    )
    for topic in plan.topics:
        yield f"topic    {topic.name}: {topic.queues} queues, {topic.messages} messages"
    for left in plan.left:
        yield f"left     {left.name}: {left.messages} records, kept in the log: {left.why}"
    yield f"offsets  {len(plan.offsets)} of {len({row.group for row in plan.offsets})} groups"
    yield from (f"note     {note}" for note in plan.notes)


def import_json(found: Survey, plan: ImportPlan) -> dict[str, object]:
    """The same for programs."""
    return {
        "records": found.records,
        "log_start": found.start,
        "log_end": found.end,
        "segment_bytes": found.segment_bytes,
        "topics": plan.topics,
        "left": plan.left,
        "offsets": [
            {
                "group": row.group,
                "topic": row.topic,
                "queue_id": row.queue_id,
                "offset": row.offset,
            }
            for row in plan.offsets
        ],
        "notes": plan.notes,
    }
