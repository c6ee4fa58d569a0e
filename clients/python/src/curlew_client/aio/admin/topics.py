"""Topics and their queues."""

from typing import Unpack

from curlew_client.aio.admin.asking import AsyncAsking
from curlew_client.documents.service import Route, Routes
from curlew_client.documents.stats import TopicStatistics
from curlew_client.documents.topics import (
    OffsetsOfTopics,
    Topic,
    TopicChange,
    TopicOffsets,
    TopicSettings,
)
from curlew_client.wire.http1 import path_part as part


class AsyncTopics(AsyncAsking):
    """Topics and their queues."""

    async def list_topics(self, *, prefix: str | None = None) -> list[Topic]:
        """List topics."""
        return await self._all(Topic, "/v1/topics", "topics", prefix=prefix)

    async def get_topic(self, topic: str) -> Topic:
        """Read a topic's settings."""
        return await self._ask(Topic, "GET", f"/v1/topics/{part(topic)}")

    async def get_route(self, topic: str) -> Route:
        """Which shard each queue is in, and where it is led."""
        return await self._ask(Route, "GET", f"/v1/topics/{part(topic)}/route")

    async def get_routes(self, *, topics: str) -> Routes:
        """The same of several topics, named in one text and parted by commas."""
        return await self._ask(Routes, "GET", "/v1/route", params={"topics": topics})

    async def get_topic_offsets(self, topic: str, *, at: str) -> TopicOffsets:
        """Offsets of all queues at a point."""
        return await self._ask(
            TopicOffsets, "GET", f"/v1/topics/{part(topic)}/offsets", params={"at": at}
        )

    async def get_topic_stats(
        self, topic: str, *, range: str | None = None, step: str | None = None
    ) -> TopicStatistics:
        """How much a topic holds, and what goes through it."""
        return await self._ask(
            TopicStatistics,
            "GET",
            f"/v1/topics/{part(topic)}/stats",
            params={"range": range, "step": step},
        )

    async def get_offsets_of_topics(self, *, topics: str, at: str) -> OffsetsOfTopics:
        """Offsets of all queues of several topics at a point."""
        return await self._ask(
            OffsetsOfTopics, "GET", "/v1/topics:offsets", params={"topics": topics, "at": at}
        )

    async def put_topic(
        self,
        topic: str,
        *,
        dry_run: bool = False,
        if_match: str | None = None,
        if_none_match: str | None = None,
        **settings: Unpack[TopicSettings],
    ) -> TopicChange:
        """Make a topic, or change what is named of it."""
        return await self._ask(
            TopicChange,
            "PUT",
            f"/v1/topics/{part(topic)}",
            params={"dry_run": dry_run},
            json=settings,
            if_match=if_match,
            if_none_match=if_none_match,
        )

    async def patch_topic(
        self,
        topic: str,
        *,
        dry_run: bool = False,
        if_match: str | None = None,
        if_none_match: str | None = None,
        **settings: Unpack[TopicSettings],
    ) -> TopicChange:
        """Change what is named of a topic."""
        return await self._ask(
            TopicChange,
            "PATCH",
            f"/v1/topics/{part(topic)}",
            params={"dry_run": dry_run},
            json=settings,
            if_match=if_match,
            if_none_match=if_none_match,
        )

    async def delete_topic(
        self,
        topic: str,
        *,
        dry_run: bool = False,
        if_match: str | None = None,
        if_none_match: str | None = None,
    ) -> TopicChange:
        """Delete a topic."""
        return await self._ask(
            TopicChange,
            "DELETE",
            f"/v1/topics/{part(topic)}",
            params={"dry_run": dry_run},
            if_match=if_match,
            if_none_match=if_none_match,
        )
