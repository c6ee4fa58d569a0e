"""`curlew remove-node` and `curlew reset-replica`: what an operator does to the replica of a node
that does not run."""

import argparse
from typing import Final

from app.cluster import ClusterConfig, ClusterSnapshot, Metadata, WithoutReplica
from app.config import Config, DataDirectoryUnusable
from app.domain.errors import InvalidRequest
from app.runtime.system_clock import SystemClock
from app.store import OsFiles, paths
from app.store.formats.files.replica_files import KeptReset
from app.store.replica.node_id import NodeIdUnreadable, node_id_of
from app.store.replica.replica_files import ReplicaFileDamaged, ReplicaFiles
from app.store.replica.reset import finish_reset

COMMANDS: Final = frozenset({"remove-node", "reset-replica"})


async def run(options: argparse.Namespace, config: Config) -> str:
    """Do it; what to print. Raises `ReplicaNeeded`, with what to do, `ReplicaNotFound`,
    `InvalidRequest`, `StoreLocked` or `DataDirectoryUnusable`."""
    if options.command == "reset-replica":
        return await _reset(config, keeps_log=options.keep_log)
    return await _remove(options.node, config)


async def _remove(node: str, config: Config) -> str:
    metadata = await Metadata.open(ClusterConfig(config.database, config.flush), SystemClock())
    try:
        shard = config.shard or _shard_of(metadata.snapshot, node)
        await metadata.replica_sets.leave(shard, node)
        view = metadata.snapshot.shards.get(shard)
        members = () if view is None else view.members
    finally:
        await metadata.close()
    left = ", ".join(each.node_id for each in members if each.node_id != node) or "none"
    return (
        f"The node {node} has no replica of the shard {shard} any more. Left: {left}. Another node"
        " may join in its place; its own data directory joins again when it is started with it.\n"
    )


def _shard_of(snapshot: ClusterSnapshot, node: str) -> str:
    """The shard that the node has a replica of."""
    members = {
        member.node_id: name
        for name, view in sorted(snapshot.shards.items())
        for member in view.members
    }
    if node not in members:
        known = ", ".join(sorted(members)) or "none"
        raise InvalidRequest(
            f"no shard has a replica at the node {node!r}", hint=f"nodes with replicas: {known}"
        )
    return members[node]


async def _reset(config: Config, *, keeps_log: bool) -> str:
    root = config.data_dir / "store"
    if not root.is_dir() or not (config.data_dir / "node-id").exists():
        raise InvalidRequest(
            f"the data directory {config.data_dir} has no replica",
            hint="name the one of the node with --data-dir",
        )
    try:
        files = OsFiles(root)
        lock = files.lock(paths.LOCK)
        try:
            node = node_id_of(config.data_dir).value
            found = await _put_out(config, node)
            replica_files = ReplicaFiles(files)
            replica_files.keep_reset(KeptReset("an operator has asked", keeps_log))
            finish_reset(files, replica_files)
        finally:
            lock.release()
    except (OSError, NodeIdUnreadable, ReplicaFileDamaged) as error:
        raise DataDirectoryUnusable(
            f"the data directory {config.data_dir} cannot be used: {error}"
        ) from error
    left = ", ".join(found.in_sync) or "none"
    return (
        f"The replica of the node {node} begins anew when the node is started: it copies the shard"
        f" {found.shard} from its leader. In sync meanwhile: {left}.\n"
    )


async def _put_out(config: Config, node: str) -> WithoutReplica:
    metadata = await Metadata.open(ClusterConfig(config.database, config.flush), SystemClock())
    try:
        shard = config.shard or _shard_of(metadata.snapshot, node)
        return await metadata.replica_sets.put_out(shard, node, "the operator of the stopped node")
    finally:
        await metadata.close()
