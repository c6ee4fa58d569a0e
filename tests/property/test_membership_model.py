"""The hand-over of queues, driven at random: members join, obey, leave, go silent, restart.

The model is a set of processes that behave as clients do: each reads the queues that its last
answer assigned, and lets revoked ones go before it confirms. It never looks into the membership to
know what it may read. What must hold after every step: no queue is read by two live processes whose
leases run, and whoever reads a queue can commit it or is stale. At rest every queue has its owner.
"""

from dataclasses import dataclass, field
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from app.domain.consumers import rebalancing
from app.domain.consumers.member_shares import Surroundings, assignment_of, queues_of
from app.domain.consumers.membership import (
    Membership,
    Profile,
    QueueName,
    Strategy,
    StrategyName,
    TopicSubscription,
)
from app.domain.errors import CurlewError, StaleGeneration

CLIENT_IDS: Final = ("a", "b", "c", "d", "e")
TOPICS: Final = ("bills", "orders")
STRATEGIES: Final = (None, Strategy(), Strategy(StrategyName.CONSISTENT_HASH))

profiles = st.builds(
    Profile,
    st.sets(st.sampled_from(TOPICS), min_size=1).map(
        lambda topics: tuple(TopicSubscription(topic) for topic in sorted(topics))
    ),
    st.sampled_from(STRATEGIES),
)


@dataclass
class Process:
    """A client as it should be."""

    client_id: str
    profile: Profile
    generation: int = 0
    reading: set[QueueName] = field(default_factory=set)
    is_stopped: bool = False
    """SIGSTOP: it believes what it believed; its lease runs out."""


class Handover(RuleBasedStateMachine):
    """Rules are what processes and operators do; `keeps_revoked` is the positive control."""

    keeps_revoked = False

    def __init__(self) -> None:
        super().__init__()
        self.membership = Membership("billing")
        self.counts = {"orders": 4, "bills": 2}
        self.processes: dict[str, Process] = {}
        """The live process of each client id that the service has not declared dead."""

    @property
    def surroundings(self) -> Surroundings:
        return Surroundings(dict(self.counts))

    def apply(self, after: Membership) -> None:
        before = self.membership
        assert after.generation - before.generation in {0, 1}
        assert len(after.new_history) == after.generation - before.generation
        assert after.counter >= before.counter
        self.membership = Membership(
            after.group,
            after.generation,
            after.counter,
            after.changed,
            after.members,
            after.queues,
        )

    def heartbeat(self, process: Process) -> None:
        """Let go of what was revoked, say so, and put the answer into effect: what it revokes is
        read until the next heartbeat."""
        self.apply(
            rebalancing.heartbeat(
                self.membership,
                process.client_id,
                process.profile,
                process.generation,
                self.surroundings,
            )
        )
        share = assignment_of(self.membership, process.client_id, self.surroundings)
        assigned = {QueueName(queue.topic, queue.queue_id) for queue in share.assigned}
        process.generation = share.generation
        kept = process.reading if self.keeps_revoked else set(share.revoked)
        process.reading = assigned | kept

    # --- rules

    @rule(client_id=st.sampled_from(CLIENT_IDS), profile=profiles)
    def start(self, client_id: str, profile: Profile) -> None:
        """A new process; one of the same client id is dead by then, or is told so."""
        process = Process(client_id, profile)
        self.processes[client_id] = process
        self.heartbeat(process)

    def awake(self) -> list[Process]:
        return [each for each in self.processes.values() if not each.is_stopped]

    @precondition(lambda self: self.awake())
    @rule(data=st.data())
    def obey(self, data: st.DataObject) -> None:
        self.heartbeat(data.draw(st.sampled_from(self.awake())))

    @precondition(lambda self: self.awake())
    @rule(data=st.data(), profile=profiles)
    def change_subscription(self, data: st.DataObject, profile: Profile) -> None:
        process = data.draw(st.sampled_from(self.awake()))
        process.profile = profile
        self.heartbeat(process)

    @precondition(lambda self: self.awake())
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        process = data.draw(st.sampled_from(self.awake()))
        del self.processes[process.client_id]
        self.apply(rebalancing.leave(self.membership, process.client_id, self.surroundings))

    @precondition(lambda self: self.awake())
    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.awake())).is_stopped = True

    @precondition(lambda self: any(each.is_stopped for each in self.processes.values()))
    @rule()
    def lease_ends(self) -> None:
        """The stopped ones are declared dead; they find out when they go on."""
        silent = {
            each.client_id: self.membership.members[each.client_id].beat
            for each in self.processes.values()
            if each.is_stopped
        }
        self.apply(rebalancing.expire(self.membership, silent, self.surroundings))
        for client_id in silent:
            zombie = self.processes.pop(client_id)
            with pytest.raises(StaleGeneration):
                rebalancing.heartbeat(
                    self.membership, client_id, zombie.profile, zombie.generation, self.surroundings
                )
            with pytest.raises(CurlewError):
                rebalancing.check_owner(self.membership, client_id, zombie.generation, [])

    @precondition(lambda self: any(each.is_stopped for each in self.processes.values()))
    @rule(data=st.data())
    def continue_in_time(self, data: st.DataObject) -> None:
        stopped = [each for each in self.processes.values() if each.is_stopped]
        process = data.draw(st.sampled_from(stopped))
        process.is_stopped = False
        self.heartbeat(process)

    @rule(topic=st.sampled_from(TOPICS), more=st.integers(1, 3))
    def queues_are_added(self, topic: str, more: int) -> None:
        self.counts[topic] = min(9, self.counts.get(topic, 0) + more)

    @rule(topic=st.sampled_from(TOPICS))
    def topic_is_deleted(self, topic: str) -> None:
        """Its queues hold nothing any more, so that nobody can read one together."""
        self.counts.pop(topic, None)
        for process in self.processes.values():
            process.reading = {name for name in process.reading if name.topic != topic}

    @rule()
    def offsets_are_reset(self) -> None:
        names = queues_of(self.membership.members, self.surroundings)
        self.apply(rebalancing.reset(self.membership, names, self.surroundings))

    @rule()
    def all_obey(self) -> None:
        """Everybody goes on, twice: once to see what is revoked, once to confirm it."""
        for process in self.processes.values():
            process.is_stopped = False
        for _ in range(3):
            for process in list(self.processes.values()):
                self.heartbeat(process)
        if not self.keeps_revoked:
            self.check_rest()

    # --- what holds

    def check_rest(self) -> None:
        wanted = set(queues_of(self.membership.members, self.surroundings))
        owned: set[QueueName] = set()
        for process in self.processes.values():
            share = assignment_of(self.membership, process.client_id, self.surroundings)
            assert share.revoked == () == share.pending
            assert process.generation == self.membership.generation
            rebalancing.check_owner(
                self.membership, process.client_id, process.generation, process.reading
            )
            owned |= process.reading
        assert owned == wanted
        assert set(self.membership.queues) == wanted

    @invariant()
    def never_two_readers(self) -> None:
        reading = [name for process in self.processes.values() for name in process.reading]
        assert len(reading) == len(set(reading)), f"read twice: {sorted(reading)}"

    @invariant()
    def readers_may_commit(self) -> None:
        for process in self.processes.values():
            if process.generation == self.membership.generation and not self.keeps_revoked:
                rebalancing.check_owner(
                    self.membership, process.client_id, process.generation, process.reading
                )

    @invariant()
    def owners_are_members(self) -> None:
        for state in self.membership.queues.values():
            assert state.owner is None or state.owner in self.membership.members
            assert state.target is None or state.target in self.membership.members
            if state.target is not None:
                assert state.owner is not None, "a queue with a target rests with nobody"


class NoHandover(Handover):
    """Its processes go on reading what they have said to let go."""

    keeps_revoked = True


def test_a_queue_never_has_two_readers_and_at_rest_each_has_one() -> None:
    run_state_machine_as_test(
        Handover, settings=settings(max_examples=150, stateful_step_count=40, deadline=None)
    )


def test_the_machine_notices_processes_that_do_not_let_go() -> None:
    with pytest.raises(AssertionError, match="read twice"):
        run_state_machine_as_test(
            NoHandover,
            settings=settings(
                max_examples=150, stateful_step_count=40, deadline=None, print_blob=False
            ),
        )
