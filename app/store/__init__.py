"""The local durable log: synchronous, no event loop, no HTTP, no SQL.

What is named here is public; nothing deeper is, except `formats`, which is pure.
"""

from app.store.config import StoreConfig
from app.store.damage import DamageKind
from app.store.fs.files import ColdRead, DiskUsage, FilePart, FileSystem, OsFiles, StoreLocked
from app.store.lifecycle.checkpoints import Checkpointing
from app.store.lifecycle.opening import StoreUnusable
from app.store.lifecycle.retention_holds import RetentionHolds
from app.store.lifecycle.retention_policy import FOREVER_MS, RetentionPolicy
from app.store.lifecycle.retention_run import RetentionReport
from app.store.log.log_figures import LogFigures
from app.store.log.sync_times import SYNC_BUCKETS_S, SyncTimes
from app.store.message_store import MessageStore
from app.store.queues.consume_queue import Unit
from app.store.read.lookups import KeyedRecords
from app.store.read.queue_reads import Gap, ReadResult
from app.store.read.record_views import (
    KnownViews,
    Piece,
    RecordsInPlace,
    as_buffers,
    first_and_last,
    in_one_piece,
    packed_bytes,
    to_copy,
    total_bytes,
)
from app.store.store_status import QueueBounds, StoreStatus
from app.store.timers.timer_log import Flushing, Page, Timer, TimerLog, TimerLogDamaged
from app.store.write.appender import Appended, StepPart, with_step_marks
from app.store.write.blocks import Answer, Done
from app.store.write.first_steps import FirstSteps
from app.store.write.gate import Gate, ReplicaGate
from app.store.write.worker import Turns

__all__ = [
    "FOREVER_MS",
    "SYNC_BUCKETS_S",
    "Answer",
    "Appended",
    "Checkpointing",
    "ColdRead",
    "DamageKind",
    "DiskUsage",
    "Done",
    "FilePart",
    "FileSystem",
    "FirstSteps",
    "Flushing",
    "Gap",
    "Gate",
    "KeyedRecords",
    "KnownViews",
    "LogFigures",
    "MessageStore",
    "OsFiles",
    "Page",
    "Piece",
    "QueueBounds",
    "ReadResult",
    "RecordsInPlace",
    "ReplicaGate",
    "RetentionHolds",
    "RetentionPolicy",
    "RetentionReport",
    "StepPart",
    "StoreConfig",
    "StoreLocked",
    "StoreStatus",
    "StoreUnusable",
    "SyncTimes",
    "Timer",
    "TimerLog",
    "TimerLogDamaged",
    "Turns",
    "Unit",
    "as_buffers",
    "first_and_last",
    "in_one_piece",
    "packed_bytes",
    "to_copy",
    "total_bytes",
    "with_step_marks",
]
