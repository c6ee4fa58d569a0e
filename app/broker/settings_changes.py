"""Changing and deleting topics and groups: what is merged, what follows of it, and who is told.

The metadata merges under its lock; here is what needs to know who is at work. What a change does to
them is counted just before it is made, on this node. A dry run counts the same and tells nobody.
Event loop only; any call may raise `MetadataUnavailable`.
"""

from typing import Final

from app.broker.context import Context
from app.broker.groups.groups import Groups
from app.broker.lifecycle.lifecycle import Lifecycle
from app.broker.members.members import Members
from app.broker.ports import Group, Topic
from app.broker.read.long_polls import LongPolls
from app.domain.changes.conditions import Changed, Terms
from app.domain.changes.effects import (
    SettingsChange,
    TopicFacts,
    effects_of_deletion,
    effects_on_group,
    effects_on_topic,
)
from app.domain.changes.merging import DEFAULT, Named
from app.domain.settings import GroupMode, default_topic_settings

_NO_TERMS: Final = Terms()


class SettingsChanges:
    """Reachable as `Broker.settings_changes`."""

    def __init__(
        self,
        context: Context,
        groups: Groups,
        members: Members,
        long_polls: LongPolls,
        lifecycle: Lifecycle,
    ) -> None:
        self._store = context.store
        self._metadata = context.metadata
        self._groups = groups
        self._offset_cache = groups.offset_cache
        self._members = members
        self._long_polls = long_polls
        self._lifecycle = lifecycle
        self._limits = context.limits

    # --- topics

    async def change_topic(self, name: str, named: Named, terms: Terms) -> SettingsChange[Topic]:
        """Make a topic, or merge what is named into it. Raises `TopicNotFound` when it must exist,
        `PreconditionFailed`, `IllegalSetting`, or `StateConflict` for fewer queues."""
        facts = self._topic_facts(name)
        with self._offset_cache.room_for_queues(name, self._queues_wanted(named), self._limits):
            changed: Changed[Topic] = await self._lifecycle.change_topic(name, named, terms)
        before, after = changed.before, changed.after
        if not terms.is_dry_run and after is not before:
            self._long_polls.wake_topic(name)
            await self._members.follow_topics()
        effects = [] if before is None else effects_on_topic(before.settings, after.settings, facts)
        return SettingsChange(before, after, effects, terms.is_dry_run)

    async def delete_topic(self, name: str, terms: Terms = _NO_TERMS) -> SettingsChange[Topic]:
        """Delete a topic and its messages, for ever. Raises `TopicNotFound`."""
        effects = effects_of_deletion(*self._groups.busy_in_topic(name))
        topic = await self._lifecycle.delete_topic(name, terms)
        if not terms.is_dry_run:
            await self._members.follow_topics()
        return SettingsChange(topic, topic, effects, terms.is_dry_run)

    def _queues_wanted(self, named: Named) -> int:
        """0: nothing is said of them, or more than any topic may have, which is refused as such."""
        queues = named.get("queues", 0)
        if not isinstance(queues, int):
            return default_topic_settings(self._limits).queues
        return queues if queues <= self._limits.queues_per_topic_max else 0

    def _topic_facts(self, name: str) -> TopicFacts:
        topic = self._metadata.snapshot.topics.get(name)
        has_replicas = self._store.has_gate
        if topic is None:
            return TopicFacts(has_replicas=has_replicas)
        bounds = [self._store.bounds(name, queue_id) for queue_id in range(topic.queues)]
        return TopicFacts(
            sum(high - low for low, high in bounds),
            len(self._offset_cache.readers(name)),
            has_replicas,
        )

    # --- groups

    async def change_group(self, name: str, named: Named, terms: Terms) -> SettingsChange[Group]:
        """Make a group, or merge what is named into it. Its mode stays while it has members.

        Raises `GroupNotFound` when it must exist, `PreconditionFailed`, `IllegalSetting`, or
        `StateConflict` for its mode.
        """
        if "mode" in named:
            mode = named["mode"]
            wanted = GroupMode.CLUSTERING if mode is DEFAULT else GroupMode(str(mode))
            await self._members.check_mode(name, wanted)
        facts = self._groups.facts(name)
        changed: Changed[Group] = await self._lifecycle.change_group(name, named, terms)
        before, after = changed.before, changed.after
        if not terms.is_dry_run and after is not before:
            self._groups.wake_everybody(name)
        effects = [] if before is None else effects_on_group(before.settings, after.settings, facts)
        return SettingsChange(before, after, effects, terms.is_dry_run)

    async def delete_group(self, name: str, terms: Terms = _NO_TERMS) -> SettingsChange[Group]:
        """Delete a group with its offsets and leases. Raises `GroupNotFound`."""
        facts = self._groups.facts(name)
        effects = effects_of_deletion(facts.leases, facts.waiting)
        group = await self._lifecycle.delete_group(name, terms)
        return SettingsChange(group, group, effects, terms.is_dry_run)
