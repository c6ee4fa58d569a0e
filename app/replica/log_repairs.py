"""Puts damaged blocks of the own log right with those of another replica.

As far as the histories of two replicas agree their blocks are the same, at the same places,
confirmed or not. So what is damaged here is asked for from the others: each place from one after
another, and the others for other places meanwhile. What comes is checked as blocks that a leader
sends are, written over the damaged records, synced and read again. Nothing of it concerns the
machine: a replica asks and answers in every role.

A record is given up when every other replica has answered that it does not have it whole. One
that does not answer may have it: until then whoever needs the record is told to try again. An
operator decides otherwise: by taking that replica out of the shard, which ends this object, or by
an unclean election (`is_loss_accepted`).

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
from app.domain.errors import ShardUnavailable
from app.domain.shortages import shortage_of
from app.replica.ports import Peers
from app.store.read.read_repair import OtherReplicas
from app.store.replica.block_reader import BlockReader
from app.store.replica.block_walk import BlockRange, BlocksRefused, BlocksUnreadable
from app.store.replica.replica_log import LogsDiffer, ReplicaLog, ReplicaLogFailed

_LOG: Final = logging.getLogger(__name__)

ANSWER_MS: Final = 1_000
"""How long one replica is waited for."""

SILENT_MS: Final = 5_000
"""One that did not answer in time is passed over for so long, or until it is heard."""

AGAIN_MS: Final = 2_000
"""Behind a round in which no replica had it; so long readers do not wait for it either."""

READER_S: Final = 3.0
"""How long a reader waits for one record."""

PLACES_MAX: Final = 10_000
"""Damaged places, and places that nobody has, that are remembered; readers of more are refused."""

_SILENT: Final = "does not answer"

_REASON_CHARS: Final = 200
"""Of what another replica is told."""


class LogView(NamedTuple):
    """The log as it is open now."""

    log: ReplicaLog
    reader: BlockReader
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


class _Refusal(NamedTuple):
    """Why a node did not help."""

    reason: str
    is_final: bool = False
    """As in `BlocksNotGiven`."""


@dataclass(slots=True)
class _Place:
    """A damaged stretch."""

    start: int
    end: int
    is_sure: bool
    """Whether a block begins at `start`; else a reader believes so."""
    due_ms: int = 0
    tried: dict[str, _Refusal] = field(default_factory=dict)
    """Nodes that did not help in this round, and why."""
    has_failed: bool = False
    """Whether a round is over in which nobody helped."""
    unasked: tuple[str, ...] = ()
    """Nodes that may have it, as of the last round."""
    mended_bytes: int = 0
    readers: list["_Reader"] = field(default_factory=list)


class _Reader(NamedTuple):
    """Who waits for a place."""

    at: int
    is_mended: "Future[bool]"


class _Nobody(NamedTuple):
    """Of a place with which nobody has helped."""

    until_ms: int
    """Nobody is asked again before then."""
    unasked: tuple[str, ...]


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
        self.is_loss_accepted = False
        """An operator has this replica lead with what is good here, whatever the others have."""
        self._peers = peers
        self._peer_nodes = tuple(peer_nodes)
        self._host = host
        self._now_ms = now_ms
        self._post = post
        self._places: list[_Place] = []
        self._questions: dict[str, _Question] = {}
        """Those that are not answered yet, by node."""
        self._silent_until_ms: dict[str, int] = {}
        """Nodes that did not answer."""
        self._last_number = 0
        self._detail = ""
        """Of the alarm."""
        self._helper: str | None = None
        """Who has helped last."""
        self._nobody_has: dict[int, _Nobody] = {}
        """By place."""
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
        nobody = self._nobody_has.get(physical_offset)
        return nobody is None or self._now_ms() >= nobody.until_ms

    @override
    def refuse_unasked(self, physical_offset: int) -> None:
        if not self._peer_nodes or self.is_loss_accepted:
            return
        nobody = self._nobody_has.get(physical_offset)
        if nobody is not None and not nobody.unasked:
            return
        others = self._peer_nodes if nobody is None else nobody.unasked
        raise ShardUnavailable(
            f"the record at {physical_offset} of the log is damaged here, and may be whole at"
            f" {', '.join(sorted(others))}, which did not say yet",
            hint="start that node, or take it out of the shard: curlew cluster remove-node",
            retry_after_s=round(AGAIN_MS / 1_000),
        )

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
        self._questions.clear()  # of another opening, whose log may have been another one

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
        """Whether no other replica has what is damaged at or behind it."""
        places = [each for each in self._places if each.end > start]
        return self.is_loss_accepted or all(each.has_failed and not each.unasked for each in places)

    def heard(self, node: str, message: RepairMessage, data: bytes) -> None:
        """Another replica asks, or answers."""
        self._silent_until_ms.pop(node, None)
        if isinstance(message, AskBlocks):
            self._answer_to(node, message)
            return
        question = self._questions.get(node)
        if question is None or question.number != message.question:
            return  # it comes too late
        del self._questions[node]
        if isinstance(message, BlocksNotGiven):
            question.place.tried[node] = _Refusal(message.reason, message.is_final)
        else:
            self._take(question, message, data)
        self.work()

    def work(self) -> None:
        """Ask for what is due; call it now and then."""
        view, now_ms = self._host.log_view(), self._now_ms()
        self._note_silent(now_ms)
        if view is None or view.log.failed is not None:
            return
        self._forget_what_is_gone(view)
        # What is due for longest goes first: what only a replica may have that does not answer is
        # due again before the last one has its turn.
        asked = {id(question.place) for question in self._questions.values()}
        due = [each for each in self._places if each.due_ms <= now_ms and id(each) not in asked]
        for place in sorted(due, key=lambda each: each.due_ms):
            if len(self._questions) == len(self._peer_nodes):
                break
            self._go_round(place, view, now_ms)
        self._tell()

    def _note_silent(self, now_ms: int) -> None:
        for question in list(self._questions.values()):
            if now_ms - question.asked_ms >= ANSWER_MS:
                del self._questions[question.node]
                question.place.tried[question.node] = _Refusal(_SILENT)
                self._silent_until_ms[question.node] = now_ms + SILENT_MS

    def _go_round(self, place: _Place, view: LogView, now_ms: int) -> None:
        """Ask the next node for a place, when it is not asked for another one; give it up for now
        behind the last."""
        left: list[str] = []
        for node in (self._helper, view.leader, *self._peer_nodes):
            if node is None or node in place.tried:
                continue
            if self._silent_until_ms.get(node, 0) > now_ms:
                place.tried[node] = _Refusal(_SILENT)
            else:
                left.append(node)
        free = next((node for node in left if node not in self._questions), None)
        if free is not None:
            self._ask(free, place, view)
        elif not left:
            self._give_up(place)

    # --- asking

    def _read_in_vain(self, reader: _Reader) -> None:
        at = reader.at
        view, known = self._host.log_view(), self._covering(at)
        if view is None:
            if known is None and len(self._places) < PLACES_MAX:  # it is asked for when it may be
                self._places.append(_Place(at, at + 1, is_sure=False))
            _answer([reader], is_mended=False)
        elif not view.log.start <= at < view.log.written:  # the reader has a wrong place
            self._remember_nobody(at)
            _answer([reader], is_mended=False)
        elif known is not None and known.has_failed and known.due_ms > self._now_ms():
            self._remember_nobody(at, known.unasked)  # nobody helps before then
            _answer([reader], is_mended=False)
        elif known is not None:
            known.readers.append(reader)
        elif view.reader.is_good(at):  # it has been put right, or the reader has a wrong place
            self._remember_nobody(at)
            _answer([reader], is_mended=True)
        elif len(self._places) >= PLACES_MAX:
            self._remember_nobody(at, self._peer_nodes)
            _answer([reader], is_mended=False)
        else:
            self._places.append(_Place(at, at + 1, is_sure=False, readers=[reader]))
            self.work()

    def _covering(self, at: int) -> _Place | None:
        return next((each for each in self._places if each.start <= at < each.end), None)

    def _ask(self, node: str, place: _Place, view: LogView) -> None:
        """Up to the end of the log."""
        self._last_number += 1
        end = view.log.written
        question = _Question(self._last_number, node, place, place.start, self._now_ms())
        self._questions[node] = question
        history = cut_history(view.history, end)
        self._peers.send(node, AskBlocks(self._last_number, place.start, end, history))

    def _take(self, question: _Question, given: GivenBlocks, data: bytes) -> None:
        view, place, node = self._host.log_view(), question.place, question.node
        if view is None or place not in self._places:
            return
        if given.start != question.start or given.end > view.log.written:
            place.tried[node] = _Refusal("sent other blocks than it was asked for")
            return
        try:
            checked = view.log.check(BlockRange(given.start, given.end, data))
            place.mended_bytes += view.log.mend(checked)
        except BlocksRefused as error:
            place.tried[node] = _Refusal(f"sent what is no good block: {error}")
        except LogsDiffer as error:
            _LOG.error("the blocks of %s from %d on are not taken: %s", node, given.start, error)
            place.tried[node] = _Refusal(f"has another log: {error}", is_final=True)
        except ReplicaLogFailed as error:
            self._host.log_failed(str(error))
        except OSError as error:
            place.tried[node] = _Refusal(f"it cannot be written: {error}")
            if shortage_of(error) is None:
                _LOG.error("the log at %d cannot be put right: %s", given.start, error)
        else:
            self._helper, place.is_sure, place.start = node, True, given.end
            place.has_failed, place.unasked = False, ()
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
        """A round in which nobody helped is over."""
        place.due_ms, place.has_failed = self._now_ms() + AGAIN_MS, True
        tried = sorted(place.tried.items())
        place.unasked = tuple(node for node, refusal in tried if not refusal.is_final)
        place.tried.clear()
        self._remember_nobody(place.start, place.unasked)
        for reader in place.readers:
            self._remember_nobody(reader.at, place.unasked)
        _answer(place.readers, is_mended=False)
        place.readers = []
        if not place.is_sure:
            if not place.unasked:  # else it is asked for again: the reader may not come again
                self._places.remove(place)
            return
        why = "; ".join(f"{node}: {refusal.reason}" for node, refusal in tried)
        self._detail = (
            f"the log is damaged at {place.start}, and no other replica has helped ({why})"
        )
        if place.unasked:
            self._detail += f"; {', '.join(place.unasked)} may have it"

    def _remember_nobody(self, at: int, unasked: tuple[str, ...] = ()) -> None:
        if len(self._nobody_has) >= PLACES_MAX:
            self._nobody_has.clear()
        self._nobody_has[at] = _Nobody(self._now_ms() + AGAIN_MS, unasked)

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
        has_room = self._peers.has_room(node)
        blocks = self._blocks_for(asked) if has_room else _Refusal("it is busy")
        if isinstance(blocks, _Refusal):
            reason = blocks.reason[:_REASON_CHARS]
            self._peers.send(node, BlocksNotGiven(asked.question, reason, blocks.is_final))
        else:
            given = GivenBlocks(asked.question, blocks.start, blocks.end)
            self._peers.send_blocks(node, given, blocks.data)

    def _blocks_for(self, asked: AskBlocks) -> BlockRange | _Refusal:
        """Good ones, or why there are none."""
        view = self._host.log_view()
        if view is None:
            return _Refusal("it is paused")
        end = view.log.written
        end = common_end(cut_history(view.history, end), end, asked.history, asked.end)
        if not view.log.start <= asked.start < end:
            return _Refusal("it does not have it", is_final=True)
        problem = ""
        for read in (view.reader.read, view.reader.first):
            try:
                return view.log.check(read(asked.start, end)).blocks
            except BlocksRefused as error:
                problem = str(error)
                if error.at is not None and error.at > asked.start:  # all before it are good
                    self.found(error.at, error.at + 1)
            except BlocksUnreadable as error:
                return _Refusal(f"it cannot be read there either: {error}", is_final=True)
            except OSError as error:
                return _Refusal(f"it cannot be read there now: {error}")
        return _Refusal(f"it is damaged there, too: {problem}", is_final=True)


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
