"""How the epochs of producers spread their messages over queues. Pure; kept by a journal.

A producer that computes queues itself has to come to the same ones when it repeats an epoch, also
when the topic has got more queues since; or messages that are stored in one queue would be sent to
another one as new. So the number of queues is fixed when an epoch first asks, for the whole
family, and with it how many messages in a row each queue takes, if the producer says so.

Bounds: `producers_max` plans, for `producer_window_ms` after they last asked for something new.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from app.domain.errors import ProducerFenced


class Plan(NamedTuple):
    """An epoch of a family fills this many queues of the topic."""

    family: str
    epoch: int
    topic: str
    queues: int
    planned_ms: int
    messages_per_turn: int | None = None
    """Of messages without key; the producer's business. None: not said, as in early plans."""
    queue_ids: Sequence[int] | None = None
    """So many others in the place of the first ones, as shards drained. None: the first ones."""
    write_queues: int | None = None
    """With `queue_ids`: keys are hashed over so many queues. None: not said, as in early plans."""
    key_queue_ids: Sequence[int] | None = None
    """Of those the ones that kept their keys; those of the others are spread over these."""

    @property
    def fields(self) -> tuple[object, ...]:
        """As an entry has them: the last ones only where they say something."""
        if self.queue_ids is None:
            return tuple(self[:6])
        return tuple(self if self.write_queues is not None else self[:7])


class ProducerPlans:
    """The newest plan of each family and topic. Part of `DedupTable`; event loop only."""

    def __init__(self) -> None:
        self._families: dict[str, dict[str, Plan]] = {}
        """In the order of their newest plans."""
        self._count = 0

    def __len__(self) -> int:
        """Plans of all families, for all topics."""
        return self._count

    def has_any(self, family: str, topic: str) -> bool:
        """Whether the family has a plan for the topic, of any epoch."""
        return topic in self._families.get(family, ())

    def find(self, family: str, epoch: int, topic: str) -> Plan | None:
        """The plan of this epoch; `ProducerFenced` when a later one has planned already."""
        plan = self._families.get(family, {}).get(topic)
        if plan is None or plan.epoch < epoch:
            return None
        if plan.epoch > epoch:
            raise ProducerFenced(
                f"producer {family!r} has epoch {plan.epoch}; {epoch} is over",
                hint="another instance of this producer has taken over",
                fields={"epoch": plan.epoch},
                outcome="not_stored",
            )
        return plan

    def add(self, plan: Plan) -> None:
        """Take a plan; it replaces that of an earlier epoch."""
        plans = self._families.pop(plan.family, {})
        self._count += plan.topic not in plans
        self._families[plan.family] = {**plans, plan.topic: plan}

    def take_back(self, plan: Plan) -> None:
        """Forget a plan that was not written. One that it replaced stays forgotten: it is over."""
        plans = self._families.get(plan.family, {})
        if plans.get(plan.topic) is plan:
            self._keep(plan.family, {topic: each for topic, each in plans.items() if each != plan})

    def drop_sealed(self, family: str, epoch: int) -> None:
        """Forget the plans of closed epochs, which nobody can ask for any more."""
        plans = self._families.get(family, {})
        self._keep(family, {topic: plan for topic, plan in plans.items() if plan.epoch > epoch})

    def drop_topic(self, topic: str) -> None:
        """Forget the plans for a topic that was deleted."""
        for family, plans in list(self._families.items()):
            if topic in plans:
                self._keep(family, {name: plan for name, plan in plans.items() if name != topic})

    def _keep(self, family: str, plans: dict[str, Plan]) -> None:
        self._count += len(plans) - len(self._families.get(family, ()))
        if plans:
            self._families[family] = plans
        else:
            self._families.pop(family, None)

    def expire(self, oldest_ms: int) -> None:
        """Forget families that planned nothing since then."""
        while self._families:
            family, plans = next(iter(self._families.items()))
            if max(plan.planned_ms for plan in plans.values()) >= oldest_ms:
                return
            self._count -= len(self._families.pop(family))

    def clear(self) -> None:
        self._families.clear()
        self._count = 0

    def __iter__(self) -> Iterator[Plan]:
        """All plans, in the order in which `add` has to take them again.

        Those that there are when the first one is asked for, whatever changes meanwhile.
        """
        for plans in list(self._families.values()):
            yield from sorted(plans.values(), key=lambda plan: plan.planned_ms)
