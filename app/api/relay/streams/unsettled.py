"""What of a stream's credit is used up, by what each shard has said. Pure; time is an argument.

A shard says how many messages of the stream are unsettled, and until when they are leased. What it
said last counts, until that time at most: a shard that goes away says nothing any more, and one
that comes back (in a later epoch) knows nothing of what it gave before, and holds it for
`HELD_DELIVERY_MS_MAX` at most. So too little may be given for a while, never too much but for
leases that were extended before their shard went away.
What a node of a version before gives, which says nothing of it, counts until its leases end.
"""

from app.broker.streams.credit_elsewhere import Unsettled
from app.domain.limits import HELD_DELIVERY_MS_MAX

_UNSAID: tuple[int, int] = (0, 0)
"""Epoch and version of a shard that has said nothing."""


class UnsettledOfShards:
    """Of one stream."""

    def __init__(self, credit: int) -> None:
        self.credit = credit
        self._said: dict[str, tuple[int, int]] = {}
        self._counts: dict[tuple[str, int], tuple[int, float]] = {}
        """By shard and epoch: how many, and until when."""
        self._unsaid = 0
        """Gives of which the shard said nothing; each counts as if it had an epoch of its own."""

    def note(self, shard: str, said: Unsettled, now_s: float) -> bool:
        """A shard says it; whether that is news, and not older than what is known."""
        version, known = (said.epoch, said.version), self._said.get(shard, _UNSAID)
        if version <= known:
            return False
        if said.epoch > known[0]:
            self._cap(shard, now_s + HELD_DELIVERY_MS_MAX / 1_000)
        self._said[shard] = version
        self._counts[shard, said.epoch] = said.messages, now_s + said.left_ms / 1_000
        self._sweep(now_s)
        return True

    def _cap(self, shard: str, most_s: float) -> None:
        """Have what a shard gave in earlier epochs count until then at most: in a later one it
        holds no delivery of before for longer."""
        for key, (count, until_s) in self._counts.items():
            if key[0] == shard:
                self._counts[key] = count, min(until_s, most_s)

    def count_unsaid(self, shard: str, messages: int, until_s: float) -> None:
        """A shard gives messages, and says nothing of what is settled: they count until `until_s`,
        when the last of their leases ends."""
        self._unsaid += 1
        self._counts[shard, -self._unsaid] = messages, until_s

    def _sweep(self, now_s: float) -> None:
        self._counts = {
            key: (count, until_s)
            for key, (count, until_s) in self._counts.items()
            if count and until_s > now_s
        }

    def room(self, now_s: float) -> int:
        """How many more may be given."""
        self._sweep(now_s)
        return self.credit - sum(count for count, _ in self._counts.values())

    def until_s(self) -> float | None:
        """When there is more room, whatever is said; None: nothing is unsettled."""
        return min((until_s for _, until_s in self._counts.values()), default=None)

    def version(self, shard: str) -> int:
        """What a shard has said last."""
        return self._said.get(shard, _UNSAID)[1]

    def is_used(self, shard: str, before_s: float | None = None) -> bool:
        """Whether a shard has something unsettled, of which it can say more; with `before_s`,
        whether it counts no more by then if nothing is said."""
        found = self._counts.get((shard, self._said.get(shard, _UNSAID)[0]))
        return found is not None and (before_s is None or found[1] <= before_s)
