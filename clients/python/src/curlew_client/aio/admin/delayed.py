"""Delayed messages, and schedules that send messages."""

from typing import Unpack

from curlew_client.aio.admin.asking import AsyncAsking
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


class AsyncDelayed(AsyncAsking):
    """Delayed messages, and schedules that send messages."""

    async def list_schedules(self) -> list[Schedule]:
        """List schedules."""
        return await self._all(Schedule, "/v1/schedules", "schedules")

    async def list_scheduled_messages(
        self, topic: str, *, page_token: str | None = None, page_size: int | None = None
    ) -> ScheduledList:
        """Delayed messages of a topic, by delivery time."""
        return await self._ask(
            ScheduledList,
            "GET",
            f"/v1/topics/{part(topic)}/scheduled",
            params={"page_token": page_token, "page_size": page_size},
        )

    async def list_all_scheduled_messages(
        self,
        *,
        prefix: str | None = None,
        page_token: str | None = None,
        page_size: int | None = None,
    ) -> ScheduledList:
        """Delayed messages of all topics, by delivery time."""
        return await self._ask(
            ScheduledList,
            "GET",
            "/v1/scheduled",
            params={"prefix": prefix, "page_token": page_token, "page_size": page_size},
        )

    async def get_schedule(self, name: str) -> Schedule:
        """Read a schedule and its next due times."""
        return await self._ask(Schedule, "GET", f"/v1/schedules/{part(name)}")

    async def get_scheduled_message(self, topic: str, recall_handle: str) -> Scheduled:
        """One delayed message."""
        return await self._ask(
            Scheduled, "GET", f"/v1/topics/{part(topic)}/scheduled/{part(recall_handle)}"
        )

    async def put_schedule(
        self,
        name: str,
        *,
        dry_run: bool = False,
        if_match: str | None = None,
        if_none_match: str | None = None,
        **settings: Unpack[ScheduleSettings],
    ) -> ScheduleChange:
        """Make a schedule, or change what is named of it."""
        return await self._ask(
            ScheduleChange,
            "PUT",
            f"/v1/schedules/{part(name)}",
            params={"dry_run": dry_run},
            json=settings,
            if_match=if_match,
            if_none_match=if_none_match,
        )

    async def patch_schedule(
        self,
        name: str,
        *,
        dry_run: bool = False,
        if_match: str | None = None,
        if_none_match: str | None = None,
        **settings: Unpack[ScheduleSettings],
    ) -> ScheduleChange:
        """Change what is named of a schedule."""
        return await self._ask(
            ScheduleChange,
            "PATCH",
            f"/v1/schedules/{part(name)}",
            params={"dry_run": dry_run},
            json=settings,
            if_match=if_match,
            if_none_match=if_none_match,
        )

    async def delete_schedule(
        self,
        name: str,
        *,
        dry_run: bool = False,
        if_match: str | None = None,
        if_none_match: str | None = None,
    ) -> ScheduleChange:
        """Delete a schedule."""
        return await self._ask(
            ScheduleChange,
            "DELETE",
            f"/v1/schedules/{part(name)}",
            params={"dry_run": dry_run},
            if_match=if_match,
            if_none_match=if_none_match,
        )

    async def deliver_scheduled_message(
        self, topic: str, recall_handle: str, *, dry_run: bool = False
    ) -> ScheduledAnswer:
        """Deliver a delayed message now."""
        return await self._ask(
            ScheduledAnswer,
            "POST",
            f"/v1/topics/{part(topic)}/scheduled/{part(recall_handle)}:deliver",
            params={"dry_run": dry_run},
        )

    async def cancel_scheduled_message(
        self, topic: str, recall_handle: str, *, dry_run: bool = False
    ) -> ScheduledAnswer:
        """Cancel a delayed message."""
        return await self._ask(
            ScheduledAnswer,
            "DELETE",
            f"/v1/topics/{part(topic)}/scheduled/{part(recall_handle)}",
            params={"dry_run": dry_run},
        )

    async def move_scheduled_message(
        self, topic: str, recall_handle: str, *, dry_run: bool = False, **settings: Unpack[NewTime]
    ) -> ScheduledAnswer:
        """Deliver a delayed message at another time."""
        return await self._ask(
            ScheduledAnswer,
            "PATCH",
            f"/v1/topics/{part(topic)}/scheduled/{part(recall_handle)}",
            params={"dry_run": dry_run},
            json=settings,
        )
