# Made from aio/admin/offsets.py by make_blocking.py. Change that, and run it.
"""Where groups are, and snapshots of it."""

from typing import Unpack

from curlew_client.blocking.admin.asking import Asking
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


class Offsets(Asking):
    """Where groups are, and snapshots of it."""

    def list_group_offsets(self, group: str) -> AllGroupOffsets:
        """Committed offsets of a group in all topics."""
        return self._ask(AllGroupOffsets, "GET", f"/v1/groups/{part(group)}/offsets")

    def list_snapshots(self, group: str) -> SnapshotList:
        """Snapshots of a group's offsets."""
        return self._ask(SnapshotList, "GET", f"/v1/groups/{part(group)}/snapshots")

    def get_group_offsets(self, group: str, topic: str) -> GroupOffsets:
        """Committed offsets of a group in a topic."""
        return self._ask(GroupOffsets, "GET", f"/v1/groups/{part(group)}/offsets/{part(topic)}")

    def get_snapshot(self, group: str, name: str) -> Snapshot:
        """One snapshot of a group's offsets."""
        return self._ask(Snapshot, "GET", f"/v1/groups/{part(group)}/snapshots/{part(name)}")

    def put_snapshot(self, group: str, name: str, *, dry_run: bool = False) -> SnapshotAnswer:
        """Keep the group's offsets under a name."""
        return self._ask(
            SnapshotAnswer,
            "PUT",
            f"/v1/groups/{part(group)}/snapshots/{part(name)}",
            params={"dry_run": dry_run},
        )

    def delete_group_offsets(
        self, group: str, topic: str, *, dry_run: bool = False
    ) -> CommitAnswer:
        """Forget a group's offsets in a topic."""
        return self._ask(
            CommitAnswer,
            "DELETE",
            f"/v1/groups/{part(group)}/offsets/{part(topic)}",
            params={"dry_run": dry_run},
        )

    def delete_snapshot(self, group: str, name: str, *, dry_run: bool = False) -> SnapshotAnswer:
        """Forget a snapshot of a group's offsets."""
        return self._ask(
            SnapshotAnswer,
            "DELETE",
            f"/v1/groups/{part(group)}/snapshots/{part(name)}",
            params={"dry_run": dry_run},
        )

    def commit_group_offsets(
        self,
        group: str,
        topic: str,
        *,
        dry_run: bool = False,
        **settings: Unpack[OffsetCommit],
    ) -> CommitAnswer | CommitPartAnswer:
        """Commit offsets of a group in a topic."""
        return self._ask(
            CommitAnswer,
            "PUT",
            f"/v1/groups/{part(group)}/offsets/{part(topic)}",
            params={"dry_run": dry_run},
            json=settings,
        )

    def reset_group_offsets(
        self, group: str, topic: str, *, dry_run: bool = False, **settings: Unpack[OffsetReset]
    ) -> ResetAnswer:
        """Set a group's offsets in a topic."""
        return self._ask(
            ResetAnswer,
            "POST",
            f"/v1/groups/{part(group)}/offsets/{part(topic)}:reset",
            params={"dry_run": dry_run},
            json=settings,
        )

    def reset_all_group_offsets(
        self, group: str, *, dry_run: bool = False, **settings: Unpack[OffsetsReset]
    ) -> ResetAnswer:
        """Set a group's offsets in all its topics."""
        return self._ask(
            ResetAnswer,
            "POST",
            f"/v1/groups/{part(group)}/offsets:reset",
            params={"dry_run": dry_run},
            json=settings,
        )

    def restore_snapshot(self, group: str, name: str, *, dry_run: bool = False) -> ResetAnswer:
        """Set a group's offsets to a snapshot."""
        return self._ask(
            ResetAnswer,
            "POST",
            f"/v1/groups/{part(group)}/snapshots/{part(name)}:restore",
            params={"dry_run": dry_run},
            json={},
        )
