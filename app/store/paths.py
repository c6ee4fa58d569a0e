"""Every file name of a store, and the parsers that invert them. All paths are relative to the root.

meta                                  what never changes: store id, segment size
meta.copy                             the same, for when that is damaged
lock                                  held by the one process that has the store open
sync-failed                           there after a sync failed, until the next start
checkpoint.curlew                     how far queues and log were on the medium
checkpoint.curlew.copy                the same or the one before, for when that is damaged
commitlog/00000000000000000000        segments, named by their first physical offset
consumequeue/TOPIC/QUEUE/00000…       queue files, named by their first byte
index/yyyyMMddHHmmssSSS               key index files, named by the time of their making, UTC
timerlog/00000000000000000000         runs of the timer log, in the order of their making
timerlog/manifest                     which of them count, and how far they go
replica-promise                       the newest term and in-sync set that the replica has heard of
replica-history                       in which terms the bytes of the log were made
replica-incarnation                   the directory's, as long as it can prove that it kept all
replica-reset                         while the replica begins anew: what is being thrown away
abort                                 here while a node has the store open; who and which boot
checkpoint                            RocketMQ's, for RocketMQ
lost+found/commitlog-OFFSET           what an open cut off; -2 behind it for the second time
"""

import re
from datetime import UTC, datetime
from typing import Final

META: Final = "meta"
META_COPY: Final = "meta.copy"
LOCK: Final = "lock"
SYNC_FAILED: Final = "sync-failed"
CHECKPOINT: Final = "checkpoint.curlew"
CHECKPOINT_COPY: Final = "checkpoint.curlew.copy"
COMMIT_LOG: Final = "commitlog"
CONSUME_QUEUES: Final = "consumequeue"
INDEX: Final = "index"
TIMER_LOG: Final = "timerlog"
TIMER_MANIFEST: Final = "timerlog/manifest"
REPLICA_PROMISE: Final = "replica-promise"
REPLICA_HISTORY: Final = "replica-history"
REPLICA_INCARNATION: Final = "replica-incarnation"
REPLICA_BEGINNING: Final = "replica-beginning"
REPLICA_RESET: Final = "replica-reset"
ABORT: Final = "abort"
ROCKET_CHECKPOINT: Final = "checkpoint"
LOST_AND_FOUND: Final = "lost+found"

_BASE: Final = re.compile(r"\d{20}")
_TOPIC: Final = re.compile(r"[%|+A-Za-z0-9_-]{1,255}")
_INDEX: Final = re.compile(r"\d{17}")
_QUEUE: Final = re.compile(r"0|[1-9]\d{0,5}")


def file_name(base: int) -> str:
    """The name of a file that begins at `base` of its byte space."""
    return f"{base:020d}"


def parse_file_name(name: str) -> int | None:
    """The base in a file name, or None when it is no such name."""
    return int(name) if _BASE.fullmatch(name) else None


def segment(base: int) -> str:
    """Path of the commit-log segment that begins at `base`."""
    return f"{COMMIT_LOG}/{file_name(base)}"


def timer_run(number: int) -> str:
    """Path of a run of the timer log."""
    return f"{TIMER_LOG}/{file_name(number)}"


def topic_directory(topic: str) -> str:
    """Directory of a topic's queues. Asserts that the name is safe: the caller has checked it."""
    assert _TOPIC.fullmatch(topic), topic
    return f"{CONSUME_QUEUES}/{topic}"


def queue_directory(topic: str, queue_id: int) -> str:
    """Directory of one queue."""
    return f"{topic_directory(topic)}/{queue_id}"


def parse_queue_id(name: str) -> int | None:
    """The queue id in a directory name, or None when it is no such name."""
    return int(name) if _QUEUE.fullmatch(name) else None


def is_topic_directory(name: str) -> bool:
    """Whether a directory below `consumequeue/` can be a topic's."""
    return _TOPIC.fullmatch(name) is not None


def cut_tail(physical_offset: int, number: int = 1) -> str:
    """Where the bytes are kept that were cut from the log there, for the `number`-th time."""
    again = f"-{number}" if number > 1 else ""
    return f"{LOST_AND_FOUND}/{COMMIT_LOG}-{file_name(physical_offset)}{again}"


def index_name(time_ms: int) -> str:
    """The name of an index file made at `time_ms`."""
    moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    return f"{moment:%Y%m%d%H%M%S}{time_ms % 1000:03d}"


def is_index_name(name: str) -> bool:
    """Whether a file below `index/` can be one of ours or RocketMQ's."""
    return _INDEX.fullmatch(name) is not None


def index_file(name: str) -> str:
    """Path of an index file."""
    return f"{INDEX}/{name}"
