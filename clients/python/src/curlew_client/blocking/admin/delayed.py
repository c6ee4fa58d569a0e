# Made from aio/admin/delayed.py by make_blocking.py. Change that, and run it.
"""Delayed messages, and schedules that send messages."""

from typing import Unpack

from curlew_client.blocking.admin.asking import Asking
from curlew_client.documents.delayed import (
    NewTime,
    Schedule,
    ScheduleChange,
    Scheduled,
    ScheduledAnswer,
    ScheduledList,
    ScheduleSettings,
)
from curlew_client.wire.http1 import path_part as part


class Delayed(Asking):
    """Delayed messages, and schedules that send messages."""

    def list_schedules(self) -> list[Schedule]:
        """List schedules."""
        return self._all(Schedule, "/v1/schedules", "schedules")

    def list_scheduled_messages(
        self, topic: str, *, page_token: str | None = None, page_size: int | None = None
    ) -> ScheduledList:
        """Delayed messages of a topic, by delivery time."""
        return self._ask(
            ScheduledList,
            "GET",
            f"/v1/topics/{part(topic)}/scheduled",
            params={"page_token": page_token, "page_size": page_size},
        )

    def list_all_scheduled_messages(
        self,
        *,
        prefix: str | None = None,
        page_token: str | None = None,
        page_size: int | None = None,
    ) -> ScheduledList:
        """Delayed messages of all topics, by delivery time."""
        return self._ask(
            ScheduledList,
            "GET",
            "/v1/scheduled",
            params={"prefix": prefix, "page_token": page_token, "page_size": page_size},
        )

    def get_schedule(self, name: str) -> Schedule:
        """Read a schedule and its next due times."""
        return self._ask(Schedule, "GET", f"/v1/schedules/{part(name)}")

    def get_scheduled_message(self, topic: str, recall_handle: str) -> Scheduled:
        """One delayed message."""
        return self._ask(
            Scheduled, "GET", f"/v1/topics/{part(topic)}/scheduled/{part(recall_handle)}"
        )

    def put_schedule(
        self,
        name: str,
        *,
        dry_run: bool = False,
        if_match: str | None = None,
        if_none_match: str | None = None,
        **settings: Unpack[ScheduleSettings],
    ) -> ScheduleChange:
        """Make a schedule, or change what is named of it."""
        return self._ask(
            ScheduleChange,
            "PUT",
            f"/v1/schedules/{part(name)}",
            params={"dry_run": dry_run},
            json=settings,
            if_match=if_match,
            if_none_match=if_none_match,
        )

    def patch_schedule(
        self,
        name: str,
        *,
        dry_run: bool = False,
        if_match: str | None = None,
        if_none_match: str | None = None,
        **settings: Unpack[ScheduleSettings],
    ) -> ScheduleChange:
        """Change what is named of a schedule."""
        return self._ask(
            ScheduleChange,
            "PATCH",
            f"/v1/schedules/{part(name)}",
            params={"dry_run": dry_run},
            json=settings,
            if_match=if_match,
            if_none_match=if_none_match,
        )

    def delete_schedule(
        self,
        name: str,
        *,
        dry_run: bool = False,
        if_match: str | None = None,
        if_none_match: str | None = None,
    ) -> ScheduleChange:
        """Delete a schedule."""
        return self._ask(
            ScheduleChange,
            "DELETE",
            f"/v1/schedules/{part(name)}",
            params={"dry_run": dry_run},
            if_match=if_match,
            if_none_match=if_none_match,
        )

    def deliver_scheduled_message(
        self, topic: str, recall_handle: str, *, dry_run: bool = False
    ) -> ScheduledAnswer:
        """Deliver a delayed message now."""
        return self._ask(
            ScheduledAnswer,
            "POST",
            f"/v1/topics/{part(topic)}/scheduled/{part(recall_handle)}:deliver",
            params={"dry_run": dry_run},
        )

    def cancel_scheduled_message(
        self, topic: str, recall_handle: str, *, dry_run: bool = False
    ) -> ScheduledAnswer:
        """Cancel a delayed message."""
        return self._ask(
            ScheduledAnswer,
            "DELETE",
            f"/v1/topics/{part(topic)}/scheduled/{part(recall_handle)}",
            params={"dry_run": dry_run},
        )

    def move_scheduled_message(
        self, topic: str, recall_handle: str, *, dry_run: bool = False, **settings: Unpack[NewTime]
    ) -> ScheduledAnswer:
        """Deliver a delayed message at another time."""
        return self._ask(
            ScheduledAnswer,
            "PATCH",
            f"/v1/topics/{part(topic)}/scheduled/{part(recall_handle)}",
            params={"dry_run": dry_run},
            json=settings,
        )
