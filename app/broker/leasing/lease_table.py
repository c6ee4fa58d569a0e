"""Who holds which message of one queue for one group, and until when. Pure; time is an argument.

A message that was fetched for a group and is not settled is in exactly one of these states:

    leased     a consumer holds it until `expires_s`
    failing    its delivery has failed; what becomes of it is about to be decided
    moving     the decision is being carried out (`take_failing`, `fail`)
    delayed    to be delivered again in its place, but not before a time
    parked     not to be delivered until somebody releases it (groups in order)
    returned   waits to be delivered (again), lowest offset first

`grant` → leased; `ack` removes; expiry → failing; `fail` → moving; `give_back` → returned. From
moving: `moved` removes, `delay` → delayed or returned, `keep_failing` → failing.

Invariants: at most one lease per offset, and only its newest `lease_id` is honoured before
`expires_s`; the attempt grows by one with each delivery, but not by one that was given back;
`InFlight.count` is the number of messages that are not returned, over all tables that share it.
Times are monotonic seconds. Event loop only.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final, NamedTuple

from app.broker.leasing.holders import InFlight
from app.broker.leasing.leases import HeldMessage, Lease, LeaseState
from app.broker.leasing.retry_policy import EXPIRED, LOST, Failure
from app.domain.limits import LEASES_ENDED_PER_LOOK_MAX

NEVER: Final = float("inf")

REMEMBERED_ACKS_MAX: Final = 65_536
"""Acks by handles that were not an offset's first; kept so that repeating one succeeds."""

_NO_HANDLE: Final = -1

_STALE_EXPIRIES_MAX: Final = 1_024
"""Expiry entries of settled leases that may pile up before they are swept out."""


class _Ack(NamedTuple):
    """An ack that `Lease.is_first` alone would not tell from one by an older handle."""

    lease_id: int
    """Of the handle that acked; `_NO_HANDLE` when a commit did."""
    newest_lease_id: int
    handles_end_s: float
    """Nobody can ask any more from then on: all handles have run out."""


_PIECE: Final = 256
"""Leases that one step lets go; some tens of microseconds."""


def _let_go(states: list[dict[int, Lease]]) -> Iterator[None]:
    while states:
        held = states.pop()
        while held:
            for _ in range(min(len(held), _PIECE)):
                held.popitem()[1].let_go()
            yield


class LeaseTable:
    """Leases of one queue and group; made anew when the group's offset is reset."""

    __slots__ = (
        "_acked",
        "_delayed",
        "_expiries",
        "_expiry_count",
        "_expiry_number",
        "_failing",
        "_forgotten_to",
        "_in_flight",
        "_leases",
        "_moving",
        "_parked",
        "_ready",
        "_returned",
        "_visibilities",
    )

    def __init__(self, in_flight: InFlight) -> None:
        self._in_flight = in_flight
        self._leases: dict[int, Lease] = {}
        self._failing: dict[int, Lease] = {}
        self._moving: dict[int, Lease] = {}
        self._delayed: dict[int, Lease] = {}
        self._parked: dict[int, Lease] = {}
        self._returned: dict[int, Lease] = {}
        self._ready: list[int] = []
        """Heap of returned offsets; entries that are no longer in `_returned` are stale."""
        self._visibilities: list[tuple[float, int]] = []
        """Heap of (visible at, offset) of delayed messages; may hold stale entries."""
        self._expiries: list[tuple[float, int, Sequence[int]]] = []
        """Heap of (expires at, number, offsets), one entry per grant; may be stale. The number of
        an entry is no other's, so that offsets are never compared."""
        self._expiry_count = 0
        self._expiry_number = 0
        self._acked: OrderedDict[int, _Ack] = OrderedDict()
        self._forgotten_to = 0
        """Acks of leases up to this id may have been forgotten, because there were too many."""

    @property
    def leased(self) -> Mapping[int, Lease]:
        """Offset → lease."""
        return self._leases

    @property
    def leased_count(self) -> int:
        return len(self._leases)

    @property
    def failing_count(self) -> int:
        """Failing or moving."""
        return len(self._failing) + len(self._moving)

    @property
    def held_count(self) -> int:
        """Leased, failing, moving or delayed."""
        return len(self._leases) + len(self._delayed) + self.failing_count

    @property
    def taken_count(self) -> int:
        """Leased, failing or moving."""
        return len(self._leases) + len(self._failing) + len(self._moving)

    @property
    def has_failing(self) -> bool:
        return bool(self._failing)

    @property
    def delayed_count(self) -> int:
        return len(self._delayed)

    def held_below(self, offset: int) -> tuple[int, int]:
        """How many messages below `offset` are in flight, and how many are delayed."""
        tables = self._leases, self._failing, self._moving
        in_flight = sum(held < offset for table in tables for held in table)
        return in_flight, sum(held < offset for held in self._delayed)

    @property
    def returned_count(self) -> int:
        return len(self._returned)

    def get(self, offset: int, lease_id: int, now_s: float) -> Lease | None:
        """The live lease with this id, or None: never held, superseded, expired or settled."""
        lease = self._leases.get(offset)
        if lease is None or lease.lease_id != lease_id or lease.expires_s <= now_s:
            return None
        return lease

    def are_live(self, held: Mapping[int, int], now_s: float) -> bool:
        """Whether each offset has the live lease with its id: `get` of many."""
        leases = self._leases
        for offset, lease_id in held.items():
            lease = leases.get(offset)
            if lease is None or lease.lease_id != lease_id or lease.expires_s <= now_s:
                return False
        return True

    def state_of(self, offset: int) -> HeldMessage | None:
        """Where the message is; None: not fetched, or settled."""
        for state, held in (
            (LeaseState.LEASED, self._leases),
            (LeaseState.FAILING, self._failing),
            (LeaseState.FAILING, self._moving),
            (LeaseState.DELAYED, self._delayed),
            (LeaseState.RETURNED, self._returned),
        ):
            lease = held.get(offset)
            if lease is not None:
                until_s = lease.expires_s if state is LeaseState.LEASED else None
                return HeldMessage(state, lease.attempt, until_s)
        return None

    # --- granting

    def grant(
        self, offsets: Sequence[int], first_lease_id: int, expires_s: float
    ) -> Sequence[Lease]:
        """Lease offsets fetched for the first time; ids count up from `first_lease_id`."""
        leases = [
            Lease(lease_id, expires_s)
            for lease_id in range(first_lease_id, first_lease_id + len(offsets))
        ]
        self._hold(offsets, leases, expires_s)
        return leases

    def grant_again(
        self, offsets: Sequence[int], first_lease_id: int, expires_s: float
    ) -> Sequence[Lease]:
        """Lease offsets that `take_returned_run` named, with the next attempt each."""
        returned = self._returned
        leases = [returned.pop(offset) for offset in offsets]
        for lease_id, lease in enumerate(leases, first_lease_id):
            lease.renew(lease_id, expires_s)
            lease.attempt += 1
        self._hold(offsets, leases, expires_s)
        return leases

    def _hold(self, offsets: Sequence[int], leases: Sequence[Lease], expires_s: float) -> None:
        if not offsets:
            return
        self._leases.update(zip(offsets, leases, strict=True))
        self._in_flight.count += len(offsets)
        self._expire_at(expires_s, offsets)

    def take_returned_run(self, count: int) -> range:
        """Take adjacent returned offsets off the queue, from the lowest on, at most `count`.

        The caller passes each on to `grant_again`, `put_back` or `forget`; until then it is
        returned still, so `drop_below` may drop it.
        """
        ready, returned = self._ready, self._returned
        start = end = -1
        while ready and end - start < count:
            offset = ready[0]
            if offset in returned:
                if start < 0:
                    start = end = offset
                elif offset != end:
                    break
                end += 1
            heappop(ready)
        return range(start, end)

    def is_returned(self, offset: int) -> bool:
        return offset in self._returned

    def put_back(self, offsets: Iterable[int]) -> None:
        """Undo `take_returned_run` for offsets that were not granted."""
        for offset in offsets:
            heappush(self._ready, offset)

    def forget(self, offset: int) -> None:
        """Drop a returned offset that can no longer be read."""
        self._returned.pop(offset, None)

    # --- settling

    def ack(self, offset: int, lease_id: int, now_s: float) -> bool:
        """End the lease for good. False when this handle does not hold the message."""
        return len(self.ack_all({offset: lease_id}, now_s)) == 1

    def ack_all(self, lease_ids: Mapping[int, int], now_s: float) -> dict[int, Lease]:
        """`ack` of offset → lease id; the leases that held their message, for `restore`."""
        leases = self._leases
        acked: dict[int, Lease] = {}
        for offset, lease_id in lease_ids.items():
            lease = leases.get(offset)
            if lease is None or lease.lease_id != lease_id or lease.expires_s <= now_s:
                continue
            del leases[offset]
            acked[offset] = lease
            if lease.holder is not None:
                lease.holder.take(-1, -lease.size)  # which `restore` needs to know
            if not lease.is_first:
                self._remember_ack(offset, lease, lease_id)
                self._forget_acks(now_s)
        self._in_flight.count -= len(acked)
        return acked

    def restore(self, offset: int, lease: Lease) -> None:
        """Undo an ack that could not be written down: the same handle holds the message again."""
        self._acked.pop(offset, None)
        if lease.holder is not None:
            lease.holder.take(1, lease.size)
        self._hold((offset,), (lease,), lease.expires_s)

    def was_acked_by(self, offset: int, lease_id: int, is_first: bool) -> bool:
        """Whether a settled message was settled by this lease. The caller knows that it is settled
        and that the lease has not run out."""
        ack = self._acked.get(offset)
        if ack is not None:
            return ack.lease_id == lease_id
        return is_first and lease_id > self._forgotten_to

    def fail(self, offset: int, lease_id: int, now_s: float, failure: Failure) -> Lease | None:
        """End the lease because its delivery failed → moving. None: the handle is not live."""
        lease = self.get(offset, lease_id, now_s)
        if lease is None:
            return None
        del self._leases[offset]
        lease.let_go()
        lease.failure = failure
        self._moving[offset] = lease
        return lease

    # --- failures

    def fail_unseen(self, offset: int, attempt: int) -> None:
        """A message that was delivered as often as it may be, before a restart → failing."""
        lease = Lease(_NO_HANDLE, 0.0)
        lease.attempt, lease.is_first, lease.failure = attempt, False, LOST
        self._failing[offset] = lease
        self._in_flight.count += 1

    def hand_back(self, offset: int, attempt: int, failure: Failure) -> Lease:
        """A message that was read without a lease, for the `attempt`-th time → moving."""
        lease = Lease(_NO_HANDLE, 0.0)
        lease.attempt, lease.is_first, lease.failure = attempt, False, failure
        self._moving[offset] = lease
        self._in_flight.count += 1
        return lease

    def forget_failing(self, offset: int, lease: Lease) -> None:
        """It was handed back in vain: whoever reads by offset has it still."""
        for states in (self._failing, self._moving):
            if states.get(offset) is lease:
                del states[offset]
                self._in_flight.count -= 1

    def take_failing(self, count: int) -> list[tuple[int, Lease]]:
        """Take up to `count` failing messages → moving."""
        taken = list(islice(self._failing.items(), count))
        for offset, lease in taken:
            del self._failing[offset]
            self._moving[offset] = lease
        return taken

    def is_moving(self, offset: int, lease: Lease) -> bool:
        """False when a commit or reset has dropped it meanwhile."""
        return self._moving.get(offset) is lease

    def moved(self, offset: int, now_s: float) -> None:
        """It is settled: a copy of it is on its way, or it was given up."""
        lease = self._moving.pop(offset)
        self._in_flight.count -= 1
        if lease.handles_end_s > now_s:
            # A handle that looks live must not be taken for the one that settled it.
            self._remember_ack(offset, lease, _NO_HANDLE)
            self._forget_acks(now_s)

    def delay(self, offset: int, visible_s: float) -> None:
        """Deliver it again in its place from `visible_s` on."""
        lease = self._moving.pop(offset)
        self._delayed[offset] = lease
        heappush(self._visibilities, (visible_s, offset))

    def make_ready(self, offset: int, earlier: int) -> None:
        """A message whose turn has come, delivered `earlier` times before → returned."""
        lease = Lease(_NO_HANDLE, 0.0)
        lease.attempt, lease.is_first = earlier, False
        self._return(offset, lease)

    def fail_returned(self, offset: int) -> None:
        """It was delivered as often as it may be already: returned → failing."""
        lease = self._returned.pop(offset)
        lease.failure = LOST
        self._failing[offset] = lease
        self._in_flight.count += 1

    def attempts_of(self, offset: int) -> int:
        """Deliveries so far of a returned message."""
        return self._returned[offset].attempt

    def park(self, offset: int) -> None:
        """moving → parked."""
        self._parked[offset] = self._moving.pop(offset)
        self._in_flight.count -= 1

    def park_unseen(self, offset: int, attempts: int) -> None:
        """It was parked before a restart."""
        lease = Lease(_NO_HANDLE, 0.0)
        lease.attempt, lease.is_first = attempts, False
        self._parked[offset] = lease

    def is_parked(self, offset: int) -> bool:
        return offset in self._parked

    def unpark(self, offset: int) -> None:
        """parked → returned, with its attempts counted anew."""
        lease = self._parked.pop(offset)
        lease.attempt = 0
        self._return(offset, lease)

    def fail_parked(self, offset: int) -> None:
        """The log has refused that it is parked: parked → failing."""
        self._failing[offset] = self._parked.pop(offset)
        self._in_flight.count += 1

    def drop_parked(self, offset: int) -> None:
        """It was not fetched yet, and is to be found when it is."""
        del self._parked[offset]

    def move_parked(self, offset: int, failure: Failure) -> Lease:
        """parked → moving: it is given up."""
        lease = self._moving[offset] = self._parked.pop(offset)
        lease.failure = failure
        self._in_flight.count += 1
        return lease

    def keep_failing(self, offset: int, lease: Lease) -> None:
        """What was decided could not be done, or is undone; it will be tried again."""
        if self._moving.pop(offset, None) is None:
            self._in_flight.count += 1
        self._failing[offset] = lease

    # --- extending, giving back, leaving behind

    def extend(
        self, offset: int, lease_id: int, now_s: float, expires_s: float, new_lease_id: int
    ) -> Lease | None:
        """Replace the lease by one with a new id that ends at `expires_s`. None: not live."""
        lease = self.get(offset, lease_id, now_s)
        if lease is None:
            return None
        lease.renew(new_lease_id, expires_s)
        self._expire_at(expires_s, (offset,))
        return lease

    def give_back(self, offset: int, lease_id: int) -> bool:
        """Return a message that never reached its consumer; the attempt does not count."""
        lease = self._leases.get(offset)
        if lease is None or lease.lease_id != lease_id:
            return False
        del self._leases[offset]
        self._in_flight.count -= 1
        lease.let_go()
        lease.attempt -= 1
        self._return(offset, lease)
        return True

    def drop_below(self, offset: int) -> None:
        """Forget everything below `offset`: a client committed ahead, or retention took it."""
        for held in [held for held in self._leases if held < offset]:
            lease = self._leases.pop(held)
            self._in_flight.count -= 1
            lease.let_go()
            if not lease.is_first:
                self._remember_ack(held, lease, lease.lease_id)
        for states in (self._delayed, self._failing, self._moving):
            for held in [held for held in states if held < offset]:
                self._remember_ack(held, states.pop(held), _NO_HANDLE)
                self._in_flight.count -= 1
        for held in [held for held in self._parked if held < offset]:
            del self._parked[held]
        for held in [held for held in self._returned if held < offset]:
            self._remember_ack(held, self._returned.pop(held), _NO_HANDLE)

    def close(self) -> None:
        """Take this table's messages out of the shared count; the table is not used again."""
        for _ in self.detach():
            pass

    @property
    def is_empty(self) -> bool:
        """Nothing is in any state."""
        some = self._leases or self._returned or self._delayed
        return not (some or self._failing or self._moving or self._parked)

    def detach(self) -> Iterator[None]:
        """As `close`, for what may be much: only who holds what is let go piece by piece, as the
        iterator is gone through."""
        states = [self._leases, self._delayed, self._failing, self._moving]
        self._in_flight.count -= sum(map(len, states))
        states += self._returned, self._parked
        self._leases, self._delayed, self._failing = {}, {}, {}
        self._moving, self._returned, self._parked = {}, {}, {}
        return _let_go(states)

    # --- time

    def expire(self, now_s: float) -> None:
        """Leases that have ended by `now_s` → failing, delays → returned: about
        `LEASES_ENDED_PER_LOOK_MAX` of each. One that waits for its turn is live for nobody."""
        expiries, leases = self._expiries, self._leases
        left = LEASES_ENDED_PER_LOOK_MAX
        while left > 0 and expiries and expiries[0][0] <= now_s:
            _, _, offsets = heappop(expiries)
            self._expiry_count -= len(offsets)
            left -= len(offsets)
            for offset in offsets:
                lease = leases.get(offset)
                if lease is not None and lease.expires_s <= now_s:
                    del leases[offset]
                    lease.let_go()
                    lease.failure = EXPIRED
                    self._failing[offset] = lease
        visibilities, delayed = self._visibilities, self._delayed
        left = LEASES_ENDED_PER_LOOK_MAX
        while left > 0 and visibilities and visibilities[0][0] <= now_s:
            _, offset = heappop(visibilities)
            left -= 1
            held = delayed.pop(offset, None)
            if held is not None:
                self._in_flight.count -= 1
                self._return(offset, held)

    @property
    def next_change_s(self) -> float:
        """No lease or delay ends before this time. May be early, because entries go stale."""
        expiries, visibilities = self._expiries, self._visibilities
        at_s = expiries[0][0] if expiries else NEVER
        if visibilities and visibilities[0][0] < at_s:
            return visibilities[0][0]
        return at_s

    def _expire_at(self, expires_s: float, offsets: Sequence[int]) -> None:
        self._expiry_number += 1
        heappush(self._expiries, (expires_s, self._expiry_number, offsets))
        self._expiry_count += len(offsets)
        if self._expiry_count > 2 * len(self._leases) + _STALE_EXPIRIES_MAX:
            self._sweep_expiries()

    def _sweep_expiries(self) -> None:
        """Drop entries of settled leases: paid for by the grants that made them."""
        held, find = self._leases.keys(), self._leases.get
        kept: list[tuple[float, int, Sequence[int]]] = []
        count = 0
        for expires_s, tie, offsets in self._expiries:
            if held.isdisjoint(offsets):
                continue
            live = [
                offset
                for offset in offsets
                if (lease := find(offset)) is not None and lease.expires_s == expires_s
            ]
            if live:
                kept.append((expires_s, tie, live))
                count += len(live)
        heapify(kept)
        self._expiries = kept
        self._expiry_count = count

    def _return(self, offset: int, lease: Lease) -> None:
        self._returned[offset] = lease
        heappush(self._ready, offset)

    def _remember_ack(self, offset: int, lease: Lease, acked_by: int) -> None:
        acked = self._acked
        acked[offset] = _Ack(acked_by, lease.lease_id, lease.handles_end_s)
        if len(acked) > REMEMBERED_ACKS_MAX:
            # Then repeating an old ack fails, but never does one succeed that should not.
            _, forgotten = acked.popitem(last=False)
            self._forgotten_to = max(self._forgotten_to, forgotten.newest_lease_id)

    def _forget_acks(self, now_s: float) -> None:
        """Forget those that nobody can ask for any more."""
        acked = self._acked
        while acked and next(iter(acked.values())).handles_end_s <= now_s:
            acked.popitem(last=False)
