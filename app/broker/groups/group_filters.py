"""The one filter with which a group reads a topic, where the group has one (`SubscriptionRule`).

Set by an operator, or named by the first who consumes; then who names none reads with it, and
another one is refused while somebody consumes: what a filter leaves out is done for the whole
group. Members may read different topics; only the filter of a topic is one. One that is set, or
taken away, is kept in the metadata, for all shards (`KeptSubscription`); one that is used is an
entry of the shard's journal, of the generations of group and topic. The higher version of the two
holds. Event loop only.
"""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from app.broker.context import Context
from app.broker.figures.clients import Clients
from app.broker.filters.filters import is_same, parse_filter
from app.broker.groups.consumption import Assignments
from app.broker.groups.groups import Groups
from app.broker.ports import Group, Topic
from app.broker.progress.progress_entries import GroupSubscription
from app.broker.topic_lookup import find_topic
from app.domain.access.audit import ACTOR, Forced
from app.domain.changes.conditions import Terms
from app.domain.consumers.consumption import (
    KeptSubscription,
    SubscriptionPair,
    SubscriptionSource,
)
from app.domain.consumers.membership import Profile, TopicSubscription
from app.domain.errors import CurlewError, IllegalFilter, SubscriptionConflict, SubscriptionNotFound
from app.domain.limits import CONSUMERS_SHOWN_MAX
from app.domain.positions import FlushMode
from app.domain.settings import SubscriptionRule

ALL = "*"
"""Everything: also what an empty filter means."""

TERMS = Terms()
"""Nothing is asked."""

CLOCKS_APART_MS: Final = 60_000
"""More than clocks of nodes may differ (a node that is a second off is not ready). The version of
what an operator says is ahead of them by this, so that it outweighs what other shards noted with
clocks of their own before they heard of it."""

_STALE_MAX = 1_024
"""Times of pairs that were forgotten, before they are swept out."""


class SetFilter(NamedTuple):
    """What came of setting one."""

    subscription: GroupSubscription
    is_new: bool


class GroupFilters:
    """One per broker."""

    def __init__(
        self,
        context: Context,
        groups: Groups,
        clients: Clients,
        assignments: Callable[[], Assignments],
    ) -> None:
        self._metadata = context.metadata
        self._clock = context.clock
        self._silence_s = context.limits.member_lease_ms / 1_000
        self._groups = groups
        self._journal = groups.consumer_journal
        self._clients = clients
        self._assignments = assignments
        self._forced = context.forced
        self._used_s: dict[tuple[str, str], tuple[str, float]] = {}
        """With which filter somebody last consumed, and when. It is not the group's where the log
        has refused it."""
        self._started_s = context.clock.monotonic_s()
        self._newest = 0
        """Version of this life of the node. It is a time, so that it does not come back with a
        filter that was deleted."""

    # --- consuming

    def check(self, group: Group, topic: str, given: str | None, *, replaces: bool = False) -> str:
        """The filter to read with. Raises `SubscriptionConflict`; `note` is to follow when the
        request is taken."""
        known = self._known(group.name, topic)
        if given is None or not given.strip():
            wanted = ALL if known is None else known.filter
        else:
            wanted = given.strip()
        if known is None or group.subscription is SubscriptionRule.FREE:
            return wanted
        if is_same(wanted, known.filter):
            return known.filter
        if not (replaces or self._may_be_replaced(group.name, topic, known)):
            raise self._conflict(group.name, topic, known, wanted)
        return wanted

    def note(self, group: Group, topic: Topic, used: str, client_id: str | None) -> None:
        """A request that reads with this filter was taken. Not waited for: what a crash forgets is
        named by the next request."""
        if group.subscription is SubscriptionRule.FREE:
            return
        pair = group.name, topic.name
        known = self._known(*pair)
        is_known = known is not None and known.filter == used
        if known is not None and not is_known and not self._may_be_replaced(*pair, known):
            before, after = ({"topic": topic.name, "filter": each} for each in (known.filter, used))
            self._forced(Forced(ACTOR.get(), f"group:{group.name}", before, after))
        self._used_s[pair] = used, self._clock.monotonic_s()
        if is_known:
            return
        now = self._next(pair, known, used, client_id)
        with contextlib.suppress(CurlewError):
            self._journal.set_subscription(group, topic, now, FlushMode.ASYNC)
        if len(self._used_s) > 2 * self._journal.subscription_count + _STALE_MAX:
            self._used_s = {
                each: used_last
                for each, used_last in self._used_s.items()
                if self._known(*each) is not None
            }

    def check_profile(self, group: Group, profile: Profile, *, replaces: bool = False) -> Profile:
        """The same for all topics that a member reads."""
        agreed = tuple(
            [
                TopicSubscription(topic, self.check(group, topic, given, replaces=replaces))
                for topic, given in profile.subscriptions
            ]
        )
        return (
            profile if agreed == profile.subscriptions else replace(profile, subscriptions=agreed)
        )

    def note_profile(
        self, group: Group, profile: Profile, client_id: str, began: Sequence[str | None]
    ) -> None:
        """The same for all topics that a member reads, but for those whose filter is not the one of
        `began` any more: `expressions` in the turn of the check."""
        now = self.expressions(group.name, profile.topics)
        for (name, used), before, known in zip(profile.subscriptions, began, now, strict=True):
            topic = self._metadata.snapshot.topics.get(name)
            if topic is not None and known in (before, used):
                self.note(group, topic, used, client_id)

    def is_used(self, group: str, profile: Profile) -> bool:
        """Whether the group has a filter for each topic of the profile, and it is the profile's."""
        for topic, used in profile.subscriptions:
            known = self._known(group, topic)
            if known is None or known.filter != used:
                return False
        return True

    def agrees(self, group: Group, profile: Profile) -> bool:
        """Whether these are the filters with which the group reads now, where it has any."""
        if group.subscription is SubscriptionRule.FREE:
            return True
        for topic, used in profile.subscriptions:
            known = self._known(group.name, topic)
            if known is not None and known.filter != used:
                return False
        return True

    def are_noted(self, group: Group, profile: Profile) -> bool:
        """Whether the group reads all topics that there are with just these filters, so that there
        is nothing to `note`."""
        if group.subscription is SubscriptionRule.FREE:
            return True
        present = self._metadata.snapshot.topics
        for topic, used in profile.subscriptions:
            known = self._known(group.name, topic)
            if (known is None or known.filter != used) and topic in present:
                return False
        return True

    def expressions(self, group: str, topics: Iterable[str]) -> list[str | None]:
        """The filter of each topic now; None: there is none."""
        found = [self._known(group, topic) for topic in topics]
        return [None if each is None else each.filter for each in found]

    def holds(self, group: str, topics: Iterable[str], began: Sequence[str | None]) -> bool:
        """Whether who began with these `expressions` may still read: with another one, it would
        leave out for the group what the group is to have. One that was deleted ends nothing."""
        now = self.expressions(group, topics)
        return now == began or all(
            each is None or each == before for each, before in zip(now, began, strict=True)
        )

    def _may_be_replaced(self, group: str, topic: str, known: GroupSubscription) -> bool:
        if known.source is not SubscriptionSource.USED or self._assignments().readers(group, topic):
            return False
        subscription = self._groups.find(group, topic)
        if subscription is not None and not subscription.line.is_empty:
            return False
        used, used_s = self._used_s.get((group, topic), (known.filter, self._started_s))
        if used != known.filter:
            used_s = self._started_s
        return self._clock.monotonic_s() - used_s >= self._silence_s

    def _conflict(
        self, group: str, topic: str, known: GroupSubscription, given: str
    ) -> SubscriptionConflict:
        rows = self._clients.consumers.rows(group).values()
        used_by = sorted({row.client_id for row in rows if row.client_id and topic in row.topics})[
            :CONSUMERS_SHOWN_MAX
        ]
        who = f" by {', '.join(used_by)}" if used_by else ""
        return SubscriptionConflict(
            f"group {group!r} reads topic {topic!r} with the filter {known.filter!r}{who}, not "
            f"with {given!r}",
            hint="leave the filter out, or use another group, or say replace_subscription=true; "
            'each request has its own filter in a group with "subscription": "free"',
            fields={
                "topic": topic,
                "current": known.filter,
                "given": given,
                "used_by": list(used_by),
            },
        )

    # --- for operators

    def all(self, group: Group) -> dict[str, GroupSubscription]:
        """Topic → filter, of topics that there are, by name."""
        snapshot = self._metadata.snapshot
        topics = {topic for name, topic in snapshot.subscriptions if name == group.name}
        topics |= self._journal.subscriptions(group.name).keys()
        found = {name: self._known(group.name, name) for name in sorted(topics)}
        return {
            name: each
            for name, each in found.items()
            if each is not None and name in snapshot.topics
        }

    def find(self, group: Group, topic: str) -> GroupSubscription:
        """One of them. Raises `TopicNotFound` or `SubscriptionNotFound`."""
        find_topic(self._metadata, topic)
        found = self._known(group.name, topic)
        if found is None:
            raise _missing(group.name, topic)
        return found

    async def set(
        self, group: Group, topic: str, wanted: str, *, set_by: str | None, terms: Terms = TERMS
    ) -> SetFilter:
        """Let the group read the topic with this filter, whoever consumes, in all shards. Raises
        `IllegalFilter`, `PreconditionFailed`, and what the metadata raise; then it is as it was."""
        view = find_topic(self._metadata, topic)
        parse_filter(wanted)
        wanted = wanted.strip() or ALL
        if "\0" in wanted:
            raise IllegalFilter("a filter has no character 0")
        made: list[SetFilter] = []

        def step(kept: KeptSubscription | None) -> KeptSubscription | None:
            known = self._newer(kept, group.name, topic)
            _check(terms, group.name, topic, known)
            if kept is not None and known == _as_set(wanted, kept):
                made[:] = [SetFilter(known, is_new=False)]
                return kept  # an entry of a journal would hold in its shard only
            now = self._kept_next(kept, known, wanted, set_by)
            made[:] = [SetFilter(_as_set(wanted, now), is_new=known is None)]
            return now

        await self._change(group, view, step, terms)
        return made[0]

    async def delete(self, group: Group, topic: str, terms: Terms = TERMS) -> GroupSubscription:
        """Let whoever consumes next name a filter, in all shards. Raises as `find` and `set`."""
        view = find_topic(self._metadata, topic)
        gone: list[GroupSubscription] = []

        def step(kept: KeptSubscription | None) -> KeptSubscription | None:
            known = self._newer(kept, group.name, topic)
            if known is None:
                raise _missing(group.name, topic)
            _check(terms, group.name, topic, known)
            gone[:] = [known]
            return self._kept_next(kept, known, None, None)

        await self._change(group, view, step, terms)
        return gone[0]

    async def _change(
        self,
        group: Group,
        topic: Topic,
        step: Callable[[KeptSubscription | None], KeptSubscription | None],
        terms: Terms,
    ) -> None:
        """Receives and polls that wait look again: here at once, elsewhere when it is known."""
        pair = SubscriptionPair(group.name, topic.name, group.generation, topic.generation)
        await self._metadata.change_subscription(pair, step, is_dry_run=terms.is_dry_run)
        if not terms.is_dry_run:
            self._groups.wake_everybody(group.name)

    # --- which one holds

    def _known(self, group: str, topic: str) -> GroupSubscription | None:
        kept = self._metadata.snapshot.subscriptions.get((group, topic))
        if kept is None:
            return self._journal.subscription(group, topic)
        return self._newer(kept, group, topic)

    def _newer(
        self, kept: KeptSubscription | None, group: str, topic: str
    ) -> GroupSubscription | None:
        """Of what the metadata keep and what this shard has noted."""
        noted = self._journal.subscription(group, topic)
        if kept is None or (noted is not None and noted.version > kept.version):
            return noted
        return None if kept.filter is None else _as_set(kept.filter, kept)

    def _kept_next(
        self,
        kept: KeptSubscription | None,
        known: GroupSubscription | None,
        wanted: str | None,
        set_by: str | None,
    ) -> KeptSubscription:
        now_ms = self._clock.now_ms()
        before = max(0 if kept is None else kept.version, 0 if known is None else known.version)
        version = max(now_ms + CLOCKS_APART_MS, before + 1)
        return KeptSubscription(wanted, set_by, now_ms, version)

    def _next(
        self,
        pair: tuple[str, str],
        known: GroupSubscription | None,
        used: str,
        set_by: str | None,
    ) -> GroupSubscription:
        now_ms = self._clock.now_ms()
        kept = self._metadata.snapshot.subscriptions.get(pair)
        before = max(0 if kept is None else kept.version, 0 if known is None else known.version)
        version = self._newest = max(now_ms, self._newest + 1, before + 1)
        return GroupSubscription(used, SubscriptionSource.USED, set_by, now_ms, version)


def _as_set(wanted: str, kept: KeptSubscription) -> GroupSubscription:
    source = SubscriptionSource.SET
    return GroupSubscription(wanted, source, kept.set_by, kept.set_ms, kept.version)


def _missing(group: str, topic: str) -> SubscriptionNotFound:
    return SubscriptionNotFound(
        f"group {group!r} has no filter in topic {topic!r}: nobody set or used one",
        hint=f"see GET /v1/groups/{group}/subscriptions",
    )


def _check(terms: Terms, group: str, topic: str, known: GroupSubscription | None) -> None:
    present = 0 if known is None else known.version
    terms.conditions.check(f"the filter of group {group!r} in topic {topic!r}", present)
