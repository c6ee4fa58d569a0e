# Made from aio/admin/groups.py by make_blocking.py. Change that, and run it.
"""Consumer groups, their members, filters and lag."""

from typing import Unpack

from curlew_client.blocking.admin.asking import Asking
from curlew_client.documents.groups import (
    Group,
    GroupChange,
    GroupLag,
    GroupSettings,
    GroupSubscription,
    GroupSubscriptionList,
    Leaving,
    MemberList,
    ParkedList,
    ParkedRelease,
    RebalanceList,
    Released,
    SubscriptionChange,
    SubscriptionSettings,
)
from curlew_client.documents.stats import GroupStatistics
from curlew_client.wire.http1 import path_part as part


class Groups(Asking):
    """Consumer groups, their members, filters and lag."""

    def list_groups(self, *, prefix: str | None = None) -> list[Group]:
        """List consumer groups."""
        return self._all(Group, "/v1/groups", "groups", prefix=prefix)

    def list_members(self, group: str) -> MemberList:
        """The members of a group and their queues."""
        return self._ask(MemberList, "GET", f"/v1/groups/{part(group)}/members")

    def list_parked(self, group: str) -> ParkedList:
        """Blocked keys of a group in order."""
        return self._ask(ParkedList, "GET", f"/v1/groups/{part(group)}/parked")

    def list_rebalances(self, group: str) -> RebalanceList:
        """Why and when queues were allocated anew."""
        return self._ask(RebalanceList, "GET", f"/v1/groups/{part(group)}/rebalances")

    def list_group_subscriptions(self, group: str) -> GroupSubscriptionList:
        """The filters with which a group reads topics."""
        return self._ask(GroupSubscriptionList, "GET", f"/v1/groups/{part(group)}/subscriptions")

    def get_group(self, group: str) -> Group:
        """Read a consumer group's settings."""
        return self._ask(Group, "GET", f"/v1/groups/{part(group)}")

    def get_lag(self, group: str, *, topic: str | None = None) -> GroupLag:
        """How far a consumer group is behind."""
        return self._ask(GroupLag, "GET", f"/v1/groups/{part(group)}/lag", params={"topic": topic})

    def get_group_stats(
        self,
        group: str,
        *,
        topic: str | None = None,
        range: str | None = None,
        step: str | None = None,
    ) -> GroupStatistics:
        """What a group is given, and what becomes of it."""
        return self._ask(
            GroupStatistics,
            "GET",
            f"/v1/groups/{part(group)}/stats",
            params={"topic": topic, "range": range, "step": step},
        )

    def get_group_subscription(self, group: str, topic: str) -> GroupSubscription:
        """The filter with which a group reads a topic."""
        return self._ask(
            GroupSubscription, "GET", f"/v1/groups/{part(group)}/subscriptions/{part(topic)}"
        )

    def put_group(
        self,
        group: str,
        *,
        dry_run: bool = False,
        if_match: str | None = None,
        if_none_match: str | None = None,
        **settings: Unpack[GroupSettings],
    ) -> GroupChange:
        """Make a consumer group, or change what is named of it."""
        return self._ask(
            GroupChange,
            "PUT",
            f"/v1/groups/{part(group)}",
            params={"dry_run": dry_run},
            json=settings,
            if_match=if_match,
            if_none_match=if_none_match,
        )

    def put_group_subscription(
        self,
        group: str,
        topic: str,
        *,
        dry_run: bool = False,
        if_match: str | None = None,
        if_none_match: str | None = None,
        **settings: Unpack[SubscriptionSettings],
    ) -> SubscriptionChange:
        """Set the filter with which a group reads a topic."""
        return self._ask(
            SubscriptionChange,
            "PUT",
            f"/v1/groups/{part(group)}/subscriptions/{part(topic)}",
            params={"dry_run": dry_run},
            json=settings,
            if_match=if_match,
            if_none_match=if_none_match,
        )

    def patch_group(
        self,
        group: str,
        *,
        dry_run: bool = False,
        if_match: str | None = None,
        if_none_match: str | None = None,
        **settings: Unpack[GroupSettings],
    ) -> GroupChange:
        """Change what is named of a consumer group."""
        return self._ask(
            GroupChange,
            "PATCH",
            f"/v1/groups/{part(group)}",
            params={"dry_run": dry_run},
            json=settings,
            if_match=if_match,
            if_none_match=if_none_match,
        )

    def delete_group(
        self,
        group: str,
        *,
        dry_run: bool = False,
        if_match: str | None = None,
        if_none_match: str | None = None,
    ) -> GroupChange:
        """Delete a consumer group."""
        return self._ask(
            GroupChange,
            "DELETE",
            f"/v1/groups/{part(group)}",
            params={"dry_run": dry_run},
            if_match=if_match,
            if_none_match=if_none_match,
        )

    def delete_member(self, group: str, client_id: str, *, dry_run: bool = False) -> Leaving:
        """Leave a group."""
        return self._ask(
            Leaving,
            "DELETE",
            f"/v1/groups/{part(group)}/members/{part(client_id)}",
            params={"dry_run": dry_run},
        )

    def delete_group_subscription(
        self,
        group: str,
        topic: str,
        *,
        dry_run: bool = False,
        if_match: str | None = None,
        if_none_match: str | None = None,
    ) -> SubscriptionChange:
        """Let whoever consumes next name the filter."""
        return self._ask(
            SubscriptionChange,
            "DELETE",
            f"/v1/groups/{part(group)}/subscriptions/{part(topic)}",
            params={"dry_run": dry_run},
            if_match=if_match,
            if_none_match=if_none_match,
        )

    def pause_group(
        self,
        group: str,
        *,
        dry_run: bool = False,
        if_match: str | None = None,
        if_none_match: str | None = None,
    ) -> GroupChange:
        """Hand out nothing to a group."""
        return self._ask(
            GroupChange,
            "POST",
            f"/v1/groups/{part(group)}:pause",
            params={"dry_run": dry_run},
            if_match=if_match,
            if_none_match=if_none_match,
        )

    def release_parked(
        self, group: str, *, dry_run: bool = False, **settings: Unpack[ParkedRelease]
    ) -> Released:
        """Unblock a key of a group in order."""
        return self._ask(
            Released,
            "POST",
            f"/v1/groups/{part(group)}/parked:release",
            params={"dry_run": dry_run},
            json=settings,
        )

    def resume_group(
        self,
        group: str,
        *,
        dry_run: bool = False,
        if_match: str | None = None,
        if_none_match: str | None = None,
    ) -> GroupChange:
        """Go on with a paused group."""
        return self._ask(
            GroupChange,
            "POST",
            f"/v1/groups/{part(group)}:resume",
            params={"dry_run": dry_run},
            if_match=if_match,
            if_none_match=if_none_match,
        )
