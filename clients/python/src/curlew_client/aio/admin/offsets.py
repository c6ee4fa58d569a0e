"""Where groups are, and snapshots of it."""

from typing import Unpack

from curlew_client.aio.admin.asking import AsyncAsking
from curlew_client.documents.offsets import (
    AllGroupOffsets,
    CommitAnswer,
    CommitPartAnswer,
    GroupOffsets,
    OffsetCommit,
    OffsetReset,
    OffsetsReset,
    ResetAnswer,
    Snapshot,
    SnapshotAnswer,
    SnapshotList,
)
from curlew_client.wire.http1 import path_part as part


class AsyncOffsets(AsyncAsking):
    """Where groups are, and snapshots of it."""

    async def list_group_offsets(self, group: str) -> AllGroupOffsets:
        """Committed offsets of a group in all topics."""
        return await self._ask(AllGroupOffsets, "GET", f"/v1/groups/{part(group)}/offsets")

    async def list_snapshots(self, group: str) -> SnapshotList:
        """Snapshots of a group's offsets."""
        return await self._ask(SnapshotList, "GET", f"/v1/groups/{part(group)}/snapshots")

    async def get_group_offsets(self, group: str, topic: str) -> GroupOffsets:
        """Committed offsets of a group in a topic."""
        return await self._ask(
            GroupOffsets, "GET", f"/v1/groups/{part(group)}/offsets/{part(topic)}"
        )

    async def get_snapshot(self, group: str, name: str) -> Snapshot:
        """One snapshot of a group's offsets."""
        return await self._ask(Snapshot, "GET", f"/v1/groups/{part(group)}/snapshots/{part(name)}")

    async def put_snapshot(self, group: str, name: str, *, dry_run: bool = False) -> SnapshotAnswer:
        """Keep the group's offsets under a name."""
        return await self._ask(
            SnapshotAnswer,
            "PUT",
            f"/v1/groups/{part(group)}/snapshots/{part(name)}",
            params={"dry_run": dry_run},
        )

    async def delete_group_offsets(
        self, group: str, topic: str, *, dry_run: bool = False
    ) -> CommitAnswer:
        """Forget a group's offsets in a topic."""
        return await self._ask(
            CommitAnswer,
            "DELETE",
            f"/v1/groups/{part(group)}/offsets/{part(topic)}",
            params={"dry_run": dry_run},
        )

    async def delete_snapshot(
        self, group: str, name: str, *, dry_run: bool = False
    ) -> SnapshotAnswer:
        """Forget a snapshot of a group's offsets."""
        return await self._ask(
            SnapshotAnswer,
            "DELETE",
            f"/v1/groups/{part(group)}/snapshots/{part(name)}",
            params={"dry_run": dry_run},
        )

    async def commit_group_offsets(
        self,
        group: str,
        topic: str,
        *,
        dry_run: bool = False,
        **settings: Unpack[OffsetCommit],
    ) -> CommitAnswer | CommitPartAnswer:
        """Commit offsets of a group in a topic."""
        return await self._ask(
            CommitAnswer,
            "PUT",
            f"/v1/groups/{part(group)}/offsets/{part(topic)}",
            params={"dry_run": dry_run},
            json=settings,
        )

    async def reset_group_offsets(
        self, group: str, topic: str, *, dry_run: bool = False, **settings: Unpack[OffsetReset]
    ) -> ResetAnswer:
        """Set a group's offsets in a topic."""
        return await self._ask(
            ResetAnswer,
            "POST",
            f"/v1/groups/{part(group)}/offsets/{part(topic)}:reset",
            params={"dry_run": dry_run},
            json=settings,
        )

    async def reset_all_group_offsets(
        self, group: str, *, dry_run: bool = False, **settings: Unpack[OffsetsReset]
    ) -> ResetAnswer:
        """Set a group's offsets in all its topics."""
        return await self._ask(
            ResetAnswer,
            "POST",
            f"/v1/groups/{part(group)}/offsets:reset",
            params={"dry_run": dry_run},
            json=settings,
        )

    async def restore_snapshot(
        self, group: str, name: str, *, dry_run: bool = False
    ) -> ResetAnswer:
        """Set a group's offsets to a snapshot."""
        return await self._ask(
            ResetAnswer,
            "POST",
            f"/v1/groups/{part(group)}/snapshots/{part(name)}:restore",
            params={"dry_run": dry_run},
            json={},
        )
