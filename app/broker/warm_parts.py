"""What a broker begins with, kept up by a replica that follows: then a take-over reads only what
came last, however much there is.

The replica's thread, until a broker is made with it; then the event loop.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from typing_extensions import override

from app.broker.dedup.dedup_table import DedupTable
from app.broker.delays.warm_timers import WarmTimers
from app.broker.journal.warm_journal import WarmJournal
from app.broker.ports import FollowedRecords
from app.broker.progress.consumer_state import ConsumerState
from app.broker.transactions.warm_transactions import WarmTransactions
from app.domain.clock import Clock
from app.domain.limits import Limits
from app.domain.names import PRODUCER_TOPIC, PROGRESS_TOPIC
from app.replica.ports import Submit, WarmState
from app.store import TimerLog


class KeptUp(NamedTuple):
    """What a broker goes on with; None: it reads that from the log."""

    timer_log: TimerLog | None = None
    transactions: WarmTransactions | None = None
    progress: WarmJournal[ConsumerState] | None = None
    producers: WarmJournal[DedupTable] | None = None


NOTHING_KEPT: Final = KeptUp()


class WarmParts(WarmState):
    """Of one opening of a replica's store."""

    def __init__(
        self, store: FollowedRecords, clock: Clock, limits: Limits, submit: Submit
    ) -> None:
        """`submit` has something done on a thread that ends with the replica."""
        self.timers = WarmTimers(store, store.timer_log(), clock, submit)
        self.transactions = WarmTransactions(store, limits)
        self.progress = WarmJournal(store, PROGRESS_TOPIC, lambda: ConsumerState(clock.now_ms()))
        self.producers = WarmJournal(store, PRODUCER_TOPIC, lambda: DedupTable(limits))

    @override
    def advance(self) -> bool:
        has_more = self.timers.advance()
        has_more |= self.transactions.advance()
        has_more |= self.progress.advance()
        return self.producers.advance() or has_more

    @override
    def tick(self, dispatched_end: int, flushed_end: int) -> None:
        self.timers.tick(dispatched_end, flushed_end)
        self.producers.state.forget_some()

    @override
    def before_cut(self) -> None:
        self.timers.before_cut()

    @override
    def end(self) -> None:
        self.timers.end()

    def hand_over(self, call_soon: Callable[[Callable[[], None]], object]) -> KeptUp:
        """A broker begins: what is under way on a thread ends by `call_soon`, on the event loop."""
        timer_log = self.timers.hand_over(call_soon)
        return KeptUp(timer_log, self.transactions, self.progress, self.producers)
