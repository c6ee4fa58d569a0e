"""`curlew remove-node`: take the node out of the replicas of its shard that is gone for good."""

import argparse
from collections.abc import Callable
from typing import Final

from app.cluster import ClusterConfig, ClusterSnapshot, Metadata
from app.config import Config
from app.domain.errors import InvalidRequest
from app.runtime.system_clock import SystemClock

COMMANDS: Final = frozenset({"remove-node"})


def add_parsers(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    add_settings: Callable[[argparse.ArgumentParser], None],
) -> None:
    """Enter the command; `add_settings` gives it the flags that name the database."""
    text = "take a node that is gone for good out of the replicas of its shard"
    command = commands.add_parser("remove-node", help=text, description=text)
    command.add_argument("node", metavar="NODE", help="its id, as `curlew cluster status` says it")
    add_settings(command)


async def run(options: argparse.Namespace, config: Config) -> str:
    """Take it out; what to print. Raises `ReplicaRefused` for one that is needed, with what to do,
    and `InvalidRequest` for one that has no replica."""
    node: str = options.node
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
