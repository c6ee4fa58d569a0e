"""What the broker needs of the store, as protocols. The value types are the store's own."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from app.domain.message import Message, StoredMessage
from app.domain.positions import FlushMode
from app.runtime.shortage_log import Lack
from app.store import (
    Answer,
    Appended,
    DiskUsage,
    Done,
    FirstSteps,
    KeyedRecords,
    QueueBounds,
    ReadResult,
    RetentionHolds,
    StepPart,
    SyncTimes,
    TimerLog,
    Unit,
)
from app.store.formats.frame.batch_frame import RequestFrame


class StoreStatus(Protocol):
    """The part of the store's status that the broker reports."""

    @property
    def failed(self) -> str | None: ...
    @property
    def refusal(self) -> str | None: ...
    @property
    def start(self) -> int: ...
    @property
    def written_end(self) -> int: ...
    @property
    def flushed_end(self) -> int: ...
    @property
    def segments(self) -> int:
        """Files of the log."""
        ...

    @property
    def pending_bytes(self) -> int: ...
    @property
    def lacks(self) -> tuple[Lack, ...]: ...
    @property
    def clock_lead_ms(self) -> int:
        """How far store times are ahead of the clock, when that is more than a clock's errors."""
        ...

    @property
    def clock_jump_ms(self) -> int:
        """How far the clock has jumped ahead of the time by which messages grow old."""
        ...

    @property
    def damages(self) -> Mapping[str, int]:
        """What was found damaged since the start, by kind; kinds without any are left out."""
        ...

    @property
    def damages_left(self) -> Mapping[str, int]:
        """The same without what was put right since."""
        ...


class Frame(Protocol):
    """A batch frame that has been parsed and checked."""

    @property
    def count(self) -> int: ...


class StoredNames(Protocol):
    """The names of topics that a store knows: those that live, and those that were deleted."""

    @property
    def deleted_names(self) -> int:
        """Names of which nothing lives."""
        ...

    @property
    def deleted_queues(self) -> int:
        """Their queues that ever had a message."""
        ...

    @property
    def queue_total(self) -> int:
        """Queues of all names that ever had a message."""
        ...

    def queue_count(self, topic: str) -> int | None:
        """The same of one name; None: not known."""
        ...


class QueueRecords(Protocol):
    """What reading a queue by offset needs of a store: of one that leads, or one that only follows.
    Event loop, and reader threads with `wait_for_disk`."""

    def bounds(self, topic: str, queue_id: int) -> QueueBounds: ...

    def next_offset(self, topic: str, queue_id: int) -> int:
        """What the next message of a queue gets."""
        ...

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_messages: int,
        max_bytes: int,
        tag_hashes: frozenset[int] | None = None,
        end_offset: int | None = None,
        in_place: bool = False,
        wait_for_disk: bool = False,
    ) -> ReadResult: ...

    def decode(self, record: memoryview) -> StoredMessage: ...


class FollowedRecords(QueueRecords, Protocol):
    """What a replica that follows keeps up is made of this. The replica's thread."""

    def timer_log(self) -> TimerLog:
        """The timer log beside this store. For one owner."""
        ...


class Store(QueueRecords, Protocol):
    """The local log. Event loop only, but for reads with `wait_for_disk`."""

    on_arrival: Callable[[str, int], object]

    @property
    def names(self) -> StoredNames: ...

    @property
    def pins(self) -> RetentionHolds:
        """What retention must leave."""
        ...

    @property
    def store_id(self) -> bytes:
        """Four bytes; part of the message ids that the store derives from positions."""
        ...

    @property
    def has_gate(self) -> bool:
        """Whether what is written is confirmed later, by other replicas."""
        ...

    @property
    def first_steps(self) -> FirstSteps:
        """What must be in the log before anything else that is appended from now on."""
        ...

    def append(
        self,
        topic: str,
        queue_id: int,
        messages: Sequence[Message],
        flush: FlushMode,
        done: Done,
        generation: int = 0,
        answer: Answer | None = None,
    ) -> Appended:
        """`answer` hears when this node has it, where there is a gate. Raises `TopicNotFound` when
        this generation of the topic was deleted. 0: of a name without generations."""
        ...

    def append_frame(
        self,
        topic: str,
        queue_id: int,
        frame: RequestFrame,
        flush: FlushMode,
        done: Done,
        entry: StepPart | None = None,
        generation: int = 0,
        answer: Answer | None = None,
    ) -> Appended:
        """With an `entry` before the frame: a crash may leave it with the first records only."""
        ...

    def append_step(
        self,
        parts: Sequence[StepPart],
        flush: FlushMode,
        done: Done,
        *,
        is_send: bool = False,
        answer: Answer | None = None,
    ) -> list[Appended]:
        """Messages for several queues; all become readable together, also across a crash.

        With records for system topics it is taken on a nearly full disk, unless it `is_send`.
        """
        ...

    def trim(self, topic: str, queue_id: int, min_offset: int) -> None: ...

    def flush(self, done: Done) -> None:
        """Bring everything appended so far to the medium."""
        ...

    def timer_log(self) -> TimerLog:
        """The timer log beside this store. For one owner."""
        ...

    def read_known(
        self, asked: Sequence[tuple[str, int, int, int]], max_bytes: int, all_bytes_max: int
    ) -> Sequence[ReadResult | None]:
        """Of several queues (topic, queue id, first offset, end) all that is asked for, or None
        where `read` is to be asked: also beyond the bytes of one, and of all. Never waits for the
        disk."""
        ...

    def read_message(
        self, message_id: str, *, topic: str | None = None, wait_for_disk: bool = False
    ) -> StoredMessage | None:
        """By an id that the store gave; with `topic` also by one that a client gave."""
        ...

    def find_by_key_before(
        self,
        wanted: tuple[str, str, int, int],
        before: int | None,
        *,
        max_messages: int,
        max_bytes: int,
        wait_for_disk: bool = False,
    ) -> KeyedRecords:
        """The newest records with a topic, key, and store time, before a physical offset."""
        ...

    def units(
        self, topic: str, queue_id: int, offset: int, end: int, *, wait_for_disk: bool = False
    ) -> list[Unit]:
        """Physical offset, size and tag hash of messages, without reading them."""
        ...

    def offset_behind(
        self, topic: str, queue_id: int, physical_offset: int, *, wait_for_disk: bool = False
    ) -> int:
        """The first offset of a queue stored at a physical offset or behind it."""
        ...

    def find_by_key(
        self,
        topic: str,
        key: str,
        begin_ms: int = 0,
        end_ms: int = ...,
        max_messages: int = 64,
        *,
        wait_for_disk: bool = False,
    ) -> list[memoryview]:
        """The newest records of a topic with a key or client-given id, in the log's order."""
        ...

    def average_bytes(self, topic: str, queue_id: int) -> int | None:
        """Size of a stored record of the queue, from a sample; None when there is none."""
        ...

    def delete_topic(self, topic: str, generation: int = 0, done: Done | None = None) -> bool:
        """Make all of a generation unreadable at once; `done` when that is safe. False: it was."""
        ...

    def begin_topic(self, topic: str, generation: int) -> None:
        """Let a generation begin, before its first message. 0: a deleted retry topic is used
        again."""
        ...

    def generation(self, topic: str) -> int:
        """What lives in the topic's queues; 0: nothing that is known."""
        ...

    def is_gone(self, topic: str, generation: int) -> bool:
        """Whether a generation that the metadata does not name was deleted, or replaced."""
        ...

    def hidden_topics(self, known: Iterable[str]) -> list[str]:
        """Names that hold messages or a generation, were not deleted, and are not `known`."""
        ...

    def status(self) -> StoreStatus: ...

    @property
    def failed(self) -> str | None:
        """Why no write is taken until a restart. For what asks many times a second."""
        ...

    @property
    def written_end(self) -> int:
        """Of the log, a physical offset. As above."""
        ...

    @property
    def sync_times(self) -> SyncTimes:
        """Of the log, since it was opened."""
        ...

    def disk_usage(self) -> DiskUsage:
        """Of the file system that holds the store, which is asked. Raises `OSError`."""
        ...
