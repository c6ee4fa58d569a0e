"""Puts damaged blocks of the own log right with those of another replica.

Below the high watermark the blocks of all replicas are the same, at the same places (the histories
have to agree so far). So what is damaged here is asked for from the others, one after another, who
give what they know to be confirmed: one that was opened a moment ago may know less of it. What
comes is checked as blocks that a leader sends are, written over, synced and read again.
Nothing of it concerns the machine: a replica asks and answers in every role.

On the replica's thread, but for what `OtherReplicas` says. Places are physical offsets.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from typing_extensions import override

from app.cluster.replication.messages import (
    AskBlocks,
    BlocksNotGiven,
    GivenBlocks,
    RepairMessage,
)
from app.cluster.replication.terms import TermStart, common_end, cut_history
from app.domain.shortages import shortage_of
from app.replica.ports import Peers
from app.store.read.read_repair import OtherReplicas
from app.store.replica.block_reader import BlockReader
from app.store.replica.block_walk import BlockRange, BlocksRefused, BlocksUnreadable
from app.store.replica.replica_log import ReplicaLog, ReplicaLogFailed

_LOG: Final = logging.getLogger(__name__)

ANSWER_MS: Final = 1_000
"""How long one replica is waited for."""

AGAIN_MS: Final = 2_000
"""Behind a round in which no replica had it; so long readers do not wait for it either."""

READER_S: Final = 3.0
"""How long a reader waits for one record."""

PLACES_MAX: Final = 10_000
"""Damaged places, and places that nobody has, that are remembered. Beyond it readers see gaps."""

_REASON_CHARS: Final = 200
"""Of what another replica is told."""


class LogView(NamedTuple):
    """The log as it is open now, and what of it is known to be confirmed."""

    log: ReplicaLog
    reader: BlockReader
    high_watermark: int
    history: tuple[TermStart, ...]
    leader: str | None
    """Who leads, if another replica does."""


class RepairHost(Protocol):
    """Who has the log."""

    def log_view(self) -> LogView | None:
        """None: nothing may be read or written now."""
        ...

    def log_failed(self, reason: str) -> None:
        """The log has failed for good."""
        ...

    def is_mended(self, remaining_count: int) -> None:
        """A damaged place was put right; so many known ones are left."""
        ...

    def alarm(self, code: str, detail: str) -> None: ...


@dataclass(slots=True)
class _Place:
    """A damaged stretch."""

    start: int
    end: int
    is_sure: bool
    """Whether a block begins at `start`; else a reader believes so."""
    due_ms: int = 0
    tried: dict[str, str] = field(default_factory=dict)
    """Nodes that did not help in this round, and why."""
    has_failed: bool = False
    """Whether a round is over in which nobody helped."""
    mended_bytes: int = 0
    readers: list["_Reader"] = field(default_factory=list)


class _Reader(NamedTuple):
    """Who waits for a place."""

    at: int
    is_mended: "Future[bool]"


class _Question(NamedTuple):
    number: int
    node: str
    place: _Place
    start: int
    asked_ms: int


class LogRepairs(OtherReplicas):
    """Of one replica, over all openings of its directory."""

    def __init__(
        self,
        peers: Peers,
        peer_nodes: Sequence[str],
        host: RepairHost,
        now_ms: Callable[[], int],
        post: Callable[[Callable[[], object]], object],
    ) -> None:
        """`post` has a callable called on the replica's thread."""
        self.mended_bytes = 0
        """Since the start."""
        self._peers = peers
        self._peer_nodes = tuple(peer_nodes)
        self._host = host
        self._now_ms = now_ms
        self._post = post
        self._places: list[_Place] = []
        self._question: _Question | None = None
        self._last_number = 0
        self._detail = ""
        """Of the alarm."""
        self._helper: str | None = None
        """Who has helped last."""
        self._nobody_has: dict[int, int] = {}
        """Places that nobody has, and until when nobody is asked again."""
        self._thread: int | None = None
        self._lock = threading.Lock()
        self._is_shut = True
        self._waiting: set[_Reader] = set()
        """Guarded by the lock, as is the flag."""

    # --- any thread

    @override
    def is_worth_asking(self, physical_offset: int) -> bool:
        if self._is_shut or not self._peer_nodes:
            return False
        return self._now_ms() >= self._nobody_has.get(physical_offset, 0)

    @override
    def fetch(self, physical_offset: int) -> bool:
        reader = _Reader(physical_offset, Future())
        may_wait = threading.get_ident() != self._thread and not _is_on_loop()
        with self._lock:
            if self._is_shut:
                return False
            self._waiting.add(reader)
        self._post(lambda: self._read_in_vain(reader))
        try:
            return may_wait and reader.is_mended.result(READER_S)
        except TimeoutError:
            return False
        finally:
            with self._lock:
                self._waiting.discard(reader)

    # --- the replica's thread

    @property
    def damaged_count(self) -> int:
        """Damaged places that are known."""
        return sum(place.is_sure for place in self._places)

    def begin(self) -> None:
        """Readers may ask from now on."""
        with self._lock:
            self._thread, self._is_shut = threading.get_ident(), False
        self._question = None  # of another opening, whose log may have been another one

    def shut(self) -> None:
        """Let no reader wait any more. What is damaged is still asked for."""
        with self._lock:
            self._is_shut = True
            _answer(list(self._waiting), is_mended=False)

    def found(self, start: int, end: int) -> None:
        """A stretch is damaged; a block begins at `start`."""
        known = self._covering(start)
        if known is not None:
            known.end, known.is_sure = max(known.end, end), True
        elif len(self._places) < PLACES_MAX:
            _LOG.warning("the log is damaged at %d; it is asked for from other replicas", start)
            self._places.append(_Place(start, end, is_sure=True))

    def first_behind(self, start: int) -> int | None:
        """The first damaged place at or behind an end of a block; None: there is none."""
        places = [max(each.start, start) for each in self._places if each.end > start]
        return min(places, default=None)

    def is_hopeless(self, start: int) -> bool:
        """Whether nobody has helped with any damage at or behind it yet."""
        return all(each.has_failed for each in self._places if each.end > start)

    def heard(self, node: str, message: RepairMessage, data: bytes) -> None:
        """Another replica asks, or answers."""
        if isinstance(message, AskBlocks):
            self._answer_to(node, message)
            return
        question = self._question
        if question is None or (question.number, question.node) != (message.question, node):
            return  # it comes too late
        self._question = None
        if isinstance(message, BlocksNotGiven):
            question.place.tried[node] = message.reason
        else:
            self._take(question, message, data)
        self.work()

    def work(self) -> None:
        """Ask for what is due; call it now and then."""
        view, now_ms, question = self._host.log_view(), self._now_ms(), self._question
        if question is not None:
            if now_ms - question.asked_ms < ANSWER_MS:
                return
            question.place.tried[question.node] = "does not answer"
            self._question = None
        if view is None or view.log.failed is not None:
            return
        self._forget_what_is_gone(view)
        for place in list(self._places):
            if place.due_ms <= now_ms:
                node = self._next_node(place, view)
                if node is not None:
                    self._ask(node, place, view)
                    return
                self._give_up(place)
        self._tell()

    # --- asking

    def _read_in_vain(self, reader: _Reader) -> None:
        at = reader.at
        view, known = self._host.log_view(), self._covering(at)
        if view is None or not view.log.start <= at < view.high_watermark:
            _answer([reader], is_mended=False)
        elif known is not None and known.has_failed and known.due_ms > self._now_ms():
            _answer([reader], is_mended=False)  # nobody helps before then
        elif known is not None:
            known.readers.append(reader)
        elif view.reader.is_good(at):  # it has been put right, or the reader has a wrong place
            self._remember_nobody(at)
            _answer([reader], is_mended=True)
        elif len(self._places) >= PLACES_MAX:
            _answer([reader], is_mended=False)
        else:
            self._places.append(_Place(at, at + 1, is_sure=False, readers=[reader]))
            self.work()

    def _covering(self, at: int) -> _Place | None:
        return next((each for each in self._places if each.start <= at < each.end), None)

    def _next_node(self, place: _Place, view: LogView) -> str | None:
        wanted = (self._helper, view.leader, *self._peer_nodes)
        return next((n for n in wanted if n is not None and n not in place.tried), None)

    def _ask(self, node: str, place: _Place, view: LogView) -> None:
        """Up to the end of the log: the other one knows what of it is confirmed."""
        self._last_number += 1
        end = view.log.written
        self._question = _Question(self._last_number, node, place, place.start, self._now_ms())
        history = cut_history(view.history, end)
        self._peers.send(node, AskBlocks(self._last_number, place.start, end, history))

    def _take(self, question: _Question, given: GivenBlocks, data: bytes) -> None:
        view, place, node = self._host.log_view(), question.place, question.node
        if view is None or place not in self._places:
            return
        if given.start != question.start or given.end > view.log.written:
            place.tried[node] = "sent other blocks than it was asked for"
            return
        try:
            checked = view.log.check(BlockRange(given.start, given.end, data))
            place.mended_bytes += view.log.mend(checked)
        except BlocksRefused as error:
            place.tried[node] = f"sent what is no good block: {error}"
        except ReplicaLogFailed as error:
            self._host.log_failed(str(error))
        except OSError as error:
            place.tried[node] = f"it cannot be written: {error}"
            if shortage_of(error) is None:
                _LOG.error("the log at %d cannot be put right: %s", given.start, error)
        else:
            self._helper, place.is_sure, place.start = node, True, given.end
            place.has_failed = False
            place.tried.clear()
            self._go_on(place, view, node)

    def _go_on(self, place: _Place, view: LogView, node: str) -> None:
        """What was given is in its place: readers may read again, and what follows is looked at."""
        ready = [reader for reader in place.readers if reader.at < place.start]
        place.readers = [reader for reader in place.readers if reader.at >= place.start]
        _answer(ready, is_mended=True)
        if place.start < place.end:
            return
        if place.start < view.log.written and not view.reader.is_good(place.start):
            place.end = place.start + 1
            return
        self._places.remove(place)
        _answer(place.readers, is_mended=True)
        self.mended_bytes += place.mended_bytes
        _LOG.warning(
            "%d bytes of the log before %d were damaged, and are put right with those of %s",
            *(place.mended_bytes, place.start, node),
        )
        self._host.is_mended(self.damaged_count)

    def _give_up(self, place: _Place) -> None:
        """Nobody has it for now."""
        place.due_ms, place.has_failed = self._now_ms() + AGAIN_MS, True
        _answer(place.readers, is_mended=False)
        place.readers = []
        if not place.is_sure:
            self._places.remove(place)
            self._remember_nobody(place.start)
            return
        self._remember_nobody(place.start)
        why = "; ".join(f"{node}: {reason}" for node, reason in sorted(place.tried.items()))
        place.tried.clear()
        self._detail = (
            f"the log is damaged at {place.start}, and no other replica has helped ({why})"
        )

    def _remember_nobody(self, at: int) -> None:
        if len(self._nobody_has) >= PLACES_MAX:
            self._nobody_has.clear()
        self._nobody_has[at] = self._now_ms() + AGAIN_MS

    def _forget_what_is_gone(self, view: LogView) -> None:
        """What retention has deleted, or a cut."""
        gone = [
            place
            for place in self._places
            if place.end <= view.log.start or place.start >= view.log.written
        ]
        for place in gone:
            _answer(place.readers, is_mended=False)
            self._places.remove(place)
        if gone:
            self._host.is_mended(self.damaged_count)

    def _tell(self) -> None:
        if any(place.is_sure and place.has_failed for place in self._places):
            self._host.alarm("LOG_DAMAGED", self._detail)

    # --- answering

    def _answer_to(self, node: str, asked: AskBlocks) -> None:
        blocks = self._blocks_for(asked) if self._peers.has_room(node) else "it is busy"
        if isinstance(blocks, str):
            self._peers.send(node, BlocksNotGiven(asked.question, blocks[:_REASON_CHARS]))
        else:
            given = GivenBlocks(asked.question, blocks.start, blocks.end)
            self._peers.send_blocks(node, given, blocks.data)

    def _blocks_for(self, asked: AskBlocks) -> BlockRange | str:
        """Good ones, or why there are none."""
        view = self._host.log_view()
        if view is None:
            return "it is paused"
        end = view.high_watermark
        end = common_end(cut_history(view.history, end), end, asked.history, asked.end)
        if not view.log.start <= asked.start < end:
            return "it does not have it, or not as confirmed"
        problem = ""
        for read in (view.reader.read, view.reader.first):
            try:
                return view.log.check(read(asked.start, end)).blocks
            except BlocksRefused as error:
                problem = str(error)
                if error.at is not None and error.at > asked.start:  # all before it are good
                    self.found(error.at, error.at + 1)
            except (BlocksUnreadable, OSError) as error:
                return f"it cannot be read there either: {error}"
        return f"it is damaged there, too: {problem}"


def _answer(readers: Sequence[_Reader], *, is_mended: bool) -> None:
    for reader in readers:
        if not reader.is_mended.done():
            reader.is_mended.set_result(is_mended)


def _is_on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
