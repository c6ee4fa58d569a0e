"""What this shard has entered in SQL of how groups consume topics, so that all shards are of one
kind, and what is to be written of it later.

Nothing is asked of a topic whose queues are all here, and nothing again of a kind that is entered:
so SQL is asked by the first use of a kind, and by turns. While SQL does not answer a kind is used
without being entered; a later turn enters it, or finds that another shard is of the other kind.

A pair is unsure while SQL may have something else than the log: its kind was used without SQL or
given up, another shard has ended it, or nobody knows whether a change was carried out. Turns settle
that: the row is deleted where the log has no kind, and entered where it has one.

Entering and leaving take turns, as what is left must not be what was entered meanwhile. Event loop
only.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from itertools import islice
from typing import Any, Final

from app.broker.context import Context
from app.domain.consumers.consumption import (
    Consumption,
    ConsumptionElsewhere,
    ConsumptionRow,
    SubscriptionPair,
)
from app.domain.errors import MetadataUnavailable
from app.runtime.service import within

_LOG: Final = logging.getLogger(__name__)

ENTER_SECONDS: Final = 2.0
"""How long a first use waits for SQL, and for others that wait for it."""
REST_SECONDS: Final = 1.0
"""How long SQL is not asked when it has not answered."""
LOOK_SECONDS: Final = 5.0
"""How often is looked what other shards have ended here by force and could not say."""
LOOKS_PER_TURN: Final = 512
"""Pairs of which one turn looks whether the log has what is entered; some milliseconds."""
UNSURE_PER_TURN: Final = 2_048
"""Pairs that one turn settles at most; as many are left in one transaction."""
ENTERS_PER_TURN: Final = 64
"""Of these, whose kind one turn enters: a transaction each."""

Names = tuple[str, str]
"""Group and topic."""
Kinds = Callable[[str, str], Consumption | None]
"""The kind of a group in a topic, as the log of this shard has it."""


class EnteredConsumptions:
    """One per broker."""

    def __init__(self, context: Context, kinds: Kinds, is_at_work: Callable[[str], bool]) -> None:
        """`is_at_work`: the group is about to be of a kind."""
        self._metadata = context.metadata
        self._rows = context.metadata.consumptions
        self._clock = context.clock
        self._kinds = kinds
        self._is_at_work = is_at_work
        self._entered: dict[SubscriptionPair, Consumption] = {}
        self._unsure: dict[Names, None] = {}
        """To be settled by turns, in this order."""
        self._loaded: dict[Names, ConsumptionRow] = {}
        """What an earlier leader of the shard has entered, and nobody has looked at yet."""
        self._is_loaded = False
        self._to_look_at: list[SubscriptionPair] = []
        """By the next turns."""
        self._turn = asyncio.Lock()
        self._asks_again_s = 0.0
        self._looks_again_s = 0.0

    def _pair(self, group: str, topic: str) -> SubscriptionPair | None:
        """None: one is not there, or all queues are here."""
        snapshot = self._metadata.snapshot
        group_now, topic_now = snapshot.groups.get(group), snapshot.topics.get(topic)
        if group_now is None or topic_now is None or not topic_now.shards:
            return None
        return SubscriptionPair(group, topic, group_now.generation, topic_now.generation)

    @property
    def is_resting(self) -> bool:
        """Whether SQL has not answered a moment ago, and is not asked."""
        return self._clock.monotonic_s() < self._asks_again_s

    def spans(self, group: str, topic: str) -> bool:
        """Whether other shards are to know how the group consumes the topic."""
        return self._pair(group, topic) is not None

    def has(self, group: str, topic: str, kind: Consumption) -> bool:
        """Whether there is nothing to enter."""
        pair = self._pair(group, topic)
        return pair is None or self._entered.get(pair) is kind

    def doubt(self, group: str, topic: str) -> None:
        """SQL may have another kind than the log has now: a turn settles it."""
        if self.spans(group, topic):
            self._unsure[group, topic] = None

    async def enter(
        self, group: str, topic: str, kind: Consumption, *, force: bool = False
    ) -> ConsumptionElsewhere | None:
        """This shard is of the kind, unless another is of the other one, which is returned; with
        `force` the others end. To be called in a turn of the group. Raises `GroupNotFound` and
        `TopicNotFound` when one was deleted."""
        if not self.spans(group, topic):
            return None
        self._unsure[group, topic] = None  # until it is known, whatever ends the waiting
        if self.is_resting:
            return None
        try:
            return await within(ENTER_SECONDS, self._enter((group, topic), kind, force=force))
        except (MetadataUnavailable, TimeoutError) as error:
            self._rest(error)
            return None

    async def _enter(
        self, names: Names, kind: Consumption, *, force: bool
    ) -> ConsumptionElsewhere | None:
        async with self._turn:
            await self._load()
            self._take_up(names)
            pair = self._pair(*names)
            if pair is None or self.is_resting:
                return None
            if not force and self._entered.get(pair) is kind is self._kinds(*names):
                self._unsure.pop(names, None)
                return None
            was = self._entered.pop(pair, None)
            found = await self._rows.enter(pair, kind, force=force)
            if found is None:
                self._entered[pair] = kind
                self._unsure.pop(names, None)
            elif was is not None:
                self._entered[pair] = was
            return found

    async def elsewhere(
        self, group: str, topic: str, kind: Consumption
    ) -> ConsumptionElsewhere | None:
        """What `enter` would find without force; changes nothing."""
        pair = self._pair(group, topic)
        if pair is None or self._entered.get(pair) is kind or self.is_resting:
            return None
        try:
            return await within(ENTER_SECONDS, self._rows.elsewhere(pair, kind))
        except (MetadataUnavailable, TimeoutError) as error:
            self._rest(error)
            return None

    async def leave(self, group: str, topic: str) -> None:
        """The log has forgotten the kind: so does SQL, at once if it answers."""
        self.doubt(group, topic)
        if self.spans(group, topic) and not self.is_resting:
            await self._ask(self._leave([(group, topic)]))

    async def _ask(self, work: Coroutine[Any, Any, None]) -> bool:
        """Whether SQL has answered in time; a later turn does it again where it has not."""
        try:
            await within(ENTER_SECONDS, work)
        except (MetadataUnavailable, TimeoutError) as error:
            self._rest(error)
            return False
        return True

    def _rest(self, error: Exception) -> None:
        self._asks_again_s = self._clock.monotonic_s() + REST_SECONDS
        _LOG.warning("how groups consume is not entered for all shards: %r", error)

    # --- by turns

    async def catch_up(self) -> list[Names]:
        """Hear of what has ended, and leave what the log has not. Returns pairs whose kind is to be
        entered."""
        first = next(iter(self._metadata.snapshot.topics.values()), None)
        if first is None or not first.shards or self.is_resting:
            return []  # all queues of all topics are here, or nobody answers
        if not await self._ask(self._hear()):
            return []
        self._look()
        batch = list(islice(self._unsure, UNSURE_PER_TURN))
        for names in batch:  # the others come next
            del self._unsure[names]
            self._unsure[names] = None
        to_leave = [names for names in batch if self._kinds(*names) is None]
        if to_leave and not await self._ask(self._leave(to_leave)):
            return []
        return [names for names in batch if self._is_to_enter(names)][:ENTERS_PER_TURN]

    def _is_to_enter(self, names: Names) -> bool:
        kind = self._kinds(*names)
        if kind is not None and self.has(*names, kind):
            self._unsure.pop(names, None)
            return False
        return kind is not None

    async def _hear(self) -> None:
        async with self._turn:
            now_s = self._clock.monotonic_s()
            if await self._load():
                self._looks_again_s = now_s + LOOK_SECONDS
            elif (self._entered or self._loaded) and now_s >= self._looks_again_s:
                for row in await self._rows.held(ended_only=True):
                    self._end(row)
                self._looks_again_s = now_s + LOOK_SECONDS

    def _end(self, row: ConsumptionRow) -> None:
        """Another shard has ended it: it is entered again, or ends here as well."""
        names = row.group, row.topic
        self._loaded.pop(names, None)
        pair = self._pair(*names)
        if pair is not None:
            self._entered.pop(pair, None)
            self._unsure[names] = None

    def _look(self) -> None:
        """Whether the log has what is entered: it forgets a kind with offsets, groups and
        topics."""
        for names in list(islice(self._loaded, LOOKS_PER_TURN)):
            if not self._is_at_work(names[0]):
                self._take_up(names)
        if not self._to_look_at:
            self._to_look_at = list(self._entered)
        looked_at = self._to_look_at[-LOOKS_PER_TURN:]
        del self._to_look_at[-LOOKS_PER_TURN:]
        for pair in looked_at:
            names = pair.group, pair.topic
            if pair != self._pair(*names):
                self._entered.pop(pair, None)
            elif self._kinds(*names) is not self._entered.get(pair):
                self._unsure[names] = None

    async def _leave(self, names: Sequence[Names]) -> None:
        async with self._turn:
            left = [each for each in names if self._is_over(each)]
            for each in left:
                self._loaded.pop(each, None)
                pair = self._pair(*each)
                if pair is not None:
                    self._entered.pop(pair, None)
            if left:
                await self._rows.leave(left)
            for each in left:
                if self._is_over(each):
                    self._unsure.pop(each, None)

    def _is_over(self, names: Names) -> bool:
        return self._kinds(*names) is None and not self._is_at_work(names[0])

    async def _load(self) -> bool:
        """Read once what an earlier leader of the shard has entered, in a turn; whether that was
        now."""
        if self._is_loaded:
            return False
        rows = await self._rows.held(ended_only=False)
        self._is_loaded = True
        self._loaded = {(row.group, row.topic): row for row in rows if not row.is_ended}
        for row in rows:
            if row.is_ended:
                self._end(row)
        return True

    def _take_up(self, names: Names) -> None:
        """What was loaded of a pair is so, where the log says the same. Before the group is of
        another kind."""
        row, pair = self._loaded.pop(names, None), self._pair(*names)
        if row is None or pair is None:
            return
        if self._kinds(*names) is row.consumption:
            self._entered[pair] = row.consumption
        else:
            self._unsure[names] = None
