# Made from aio/admin/topics.py by make_blocking.py. Change that, and run it.
"""Topics and their queues."""

from typing import Unpack

from curlew_client.blocking.admin.asking import Asking
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


class Topics(Asking):
    """Topics and their queues."""

    def list_topics(self, *, prefix: str | None = None) -> list[Topic]:
        """List topics."""
        return self._all(Topic, "/v1/topics", "topics", prefix=prefix)

    def get_topic(self, topic: str) -> Topic:
        """Read a topic's settings."""
        return self._ask(Topic, "GET", f"/v1/topics/{part(topic)}")

    def get_route(self, topic: str) -> Route:
        """Which shard each queue is in, and where it is led."""
        return self._ask(Route, "GET", f"/v1/topics/{part(topic)}/route")

    def get_routes(self, *, topics: str) -> Routes:
        """The same of several topics, named in one text and parted by commas."""
        return self._ask(Routes, "GET", "/v1/route", params={"topics": topics})

    def get_topic_offsets(self, topic: str, *, at: str) -> TopicOffsets:
        """Offsets of all queues at a point."""
        return self._ask(
            TopicOffsets, "GET", f"/v1/topics/{part(topic)}/offsets", params={"at": at}
        )

    def get_topic_stats(
        self, topic: str, *, range: str | None = None, step: str | None = None
    ) -> TopicStatistics:
        """How much a topic holds, and what goes through it."""
        return self._ask(
            TopicStatistics,
            "GET",
            f"/v1/topics/{part(topic)}/stats",
            params={"range": range, "step": step},
        )

    def get_offsets_of_topics(self, *, topics: str, at: str) -> OffsetsOfTopics:
        """Offsets of all queues of several topics at a point."""
        return self._ask(
            OffsetsOfTopics, "GET", "/v1/topics:offsets", params={"topics": topics, "at": at}
        )

    def put_topic(
        self,
        topic: str,
        *,
        dry_run: bool = False,
        if_match: str | None = None,
        if_none_match: str | None = None,
        **settings: Unpack[TopicSettings],
    ) -> TopicChange:
        """Make a topic, or change what is named of it."""
        return self._ask(
            TopicChange,
            "PUT",
            f"/v1/topics/{part(topic)}",
            params={"dry_run": dry_run},
            json=settings,
            if_match=if_match,
            if_none_match=if_none_match,
        )

    def patch_topic(
        self,
        topic: str,
        *,
        dry_run: bool = False,
        if_match: str | None = None,
        if_none_match: str | None = None,
        **settings: Unpack[TopicSettings],
    ) -> TopicChange:
        """Change what is named of a topic."""
        return self._ask(
            TopicChange,
            "PATCH",
            f"/v1/topics/{part(topic)}",
            params={"dry_run": dry_run},
            json=settings,
            if_match=if_match,
            if_none_match=if_none_match,
        )

    def delete_topic(
        self,
        topic: str,
        *,
        dry_run: bool = False,
        if_match: str | None = None,
        if_none_match: str | None = None,
    ) -> TopicChange:
        """Delete a topic."""
        return self._ask(
            TopicChange,
            "DELETE",
            f"/v1/topics/{part(topic)}",
            params={"dry_run": dry_run},
            if_match=if_match,
            if_none_match=if_none_match,
        )
