"""The node, its configuration, namespaces and operations."""

from curlew_client.aio.admin.asking import AsyncAsking
from curlew_client.documents.service import (
    Cancel,
    Cluster,
    ClusterEvent,
    Config,
    ConfigChange,
    Drain,
    ErrorCodeList,
    HandOver,
    Namespace,
    NamespaceAnswer,
    NodeList,
    Operation,
    OperationList,
    Readiness,
    ReplicaRemoval,
    ReplicaReset,
    UncleanElection,
)
from curlew_client.documents.stats import NodeStatistics
from curlew_client.wire.http1 import path_part as part


class AsyncService(AsyncAsking):
    """The node, its configuration, namespaces and operations."""

    async def list_error_codes(self) -> ErrorCodeList:
        """Every code that a problem document may carry."""
        return await self._ask(ErrorCodeList, "GET", "/v1/error-codes")

    async def list_namespaces(self, *, prefix: str | None = None) -> list[Namespace]:
        """List namespaces."""
        return await self._all(Namespace, "/v1/namespaces", "namespaces", prefix=prefix)

    async def list_nodes(self) -> NodeList:
        """The nodes of the cluster."""
        return await self._ask(NodeList, "GET", "/v1/nodes")

    async def list_operations(self) -> OperationList:
        """List operations."""
        return await self._ask(OperationList, "GET", "/v1/operations")

    async def get_readiness(self) -> Readiness:
        """Whether the node takes requests."""
        return await self._ask(Readiness, "GET", "/readyz")

    async def get_cluster(self) -> Cluster:
        """The nodes and shards of the cluster, as the node that is asked knows them."""
        return await self._ask(Cluster, "GET", "/v1/cluster")

    async def get_cluster_events(self) -> list[ClusterEvent]:
        """What happened to the nodes and shards, the newest first."""
        return await self._all(ClusterEvent, "/v1/cluster/events", "events")

    async def hand_over_shard(
        self, shard: str, *, node: str | None = None, dry_run: bool = False
    ) -> HandOver:
        """Have another node lead a shard: `node`, or the replica in sync that has most. It has
        begun when this returns; `get_cluster` says who leads."""
        return await self._ask(
            HandOver,
            "POST",
            f"/v1/shards/{part(shard)}/hand-over",
            json={} if node is None else {"node": node},
            params={"dry_run": dry_run},
        )

    async def drain_shard(self, shard: str, *, keys: bool = False, dry_run: bool = False) -> Drain:
        """Drain a shard that is to be taken away: what is new goes to others, messages of a key
        only with `keys`, as order and idempotence do not hold across that moment. Says what is
        left; asked again, too."""
        return await self._ask(
            Drain,
            "POST",
            f"/v1/shards/{part(shard)}/drain",
            json={"keys": keys},
            params={"dry_run": dry_run},
        )

    async def undo_drain(self, shard: str, *, dry_run: bool = False) -> Drain:
        """Have a shard that drains take messages again; keys that had moved come back."""
        return await self._ask(
            Drain, "DELETE", f"/v1/shards/{part(shard)}/drain", params={"dry_run": dry_run}
        )

    async def elect_replica(
        self, shard: str, *, replica: str, unclean: bool, dry_run: bool = False
    ) -> UncleanElection:
        """Have a replica lead that is not in sync, where all that are have been lost for good:
        what they alone had confirmed is given up, which `unclean=True` says. With `dry_run` only
        what would be lost is told. It has begun when this returns."""
        return await self._ask(
            UncleanElection,
            "POST",
            f"/v1/shards/{part(shard)}/elect",
            json={"replica": replica, "unclean": unclean},
            params={"dry_run": dry_run},
        )

    async def remove_replica(
        self, shard: str, node_id: str, *, dry_run: bool = False
    ) -> ReplicaRemoval:
        """Take a node out of the replicas of a shard for good, so that another one may join in its
        place. Refused while the shard needs it."""
        return await self._ask(
            ReplicaRemoval,
            "DELETE",
            f"/v1/shards/{part(shard)}/replicas/{part(node_id)}",
            params={"dry_run": dry_run},
        )

    async def reset_replica(
        self, shard: str, node_id: str, *, keep_log: bool = False, dry_run: bool = False
    ) -> ReplicaReset:
        """Have a replica begin anew: what it has is thrown away and copied from the leader;
        `keep_log` keeps its log, where that is the leader's. It has begun when this returns;
        `get_cluster` says how far it has come. Refused while the shard needs the replica."""
        return await self._ask(
            ReplicaReset,
            "POST",
            f"/v1/shards/{part(shard)}/replicas/{part(node_id)}/reset",
            json={"keep_log": keep_log},
            params={"dry_run": dry_run},
        )

    async def get_stats(
        self, *, range: str | None = None, step: str | None = None
    ) -> NodeStatistics:
        """What went through the node that is asked, in all its topics."""
        return await self._ask(
            NodeStatistics, "GET", "/v1/stats", params={"range": range, "step": step}
        )

    async def get_limits(self) -> dict[str, int]:
        """The bounds of this node, by name."""
        return await self._ask(dict, "GET", "/v1/limits")

    async def get_config(self) -> Config:
        """Every setting of this node."""
        return await self._ask(Config, "GET", "/v1/config")

    async def get_namespace(self, namespace: str) -> Namespace:
        """Read a namespace."""
        return await self._ask(Namespace, "GET", f"/v1/namespaces/{part(namespace)}")

    async def get_operation(self, operation_id: str) -> Operation:
        """How far an operation is."""
        return await self._ask(Operation, "GET", f"/v1/operations/{part(operation_id)}")

    async def put_namespace(
        self,
        namespace: str,
        *,
        dry_run: bool = False,
        if_match: str | None = None,
        if_none_match: str | None = None,
    ) -> NamespaceAnswer:
        """Make a namespace."""
        return await self._ask(
            NamespaceAnswer,
            "PUT",
            f"/v1/namespaces/{part(namespace)}",
            params={"dry_run": dry_run},
            if_match=if_match,
            if_none_match=if_none_match,
        )

    async def patch_config(
        self,
        *,
        dry_run: bool = False,
        if_match: str | None = None,
        if_none_match: str | None = None,
        **settings: str | int | bool | None,
    ) -> ConfigChange:
        """Change settings while nodes run."""
        return await self._ask(
            ConfigChange,
            "PATCH",
            "/v1/config",
            params={"dry_run": dry_run},
            json=settings,
            if_match=if_match,
            if_none_match=if_none_match,
        )

    async def delete_namespace(
        self,
        namespace: str,
        *,
        dry_run: bool = False,
        if_match: str | None = None,
        if_none_match: str | None = None,
    ) -> NamespaceAnswer:
        """Delete a namespace."""
        return await self._ask(
            NamespaceAnswer,
            "DELETE",
            f"/v1/namespaces/{part(namespace)}",
            params={"dry_run": dry_run},
            if_match=if_match,
            if_none_match=if_none_match,
        )

    async def cancel_operation(self, operation_id: str, *, dry_run: bool = False) -> Cancel:
        """Stop an operation."""
        return await self._ask(
            Cancel,
            "POST",
            f"/v1/operations/{part(operation_id)}:cancel",
            params={"dry_run": dry_run},
        )
