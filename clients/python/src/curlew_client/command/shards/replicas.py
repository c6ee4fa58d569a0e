"""`curlew cluster remove-node …` and `reset-replica …`: what is done to one replica of a shard."""

from typing import Annotated

from curlew_client.command.asking import DryRun, Yes, confirm
from curlew_client.command.entry import Exit
from curlew_client.command.output import print_fields, print_json, say
from curlew_client.command.parsing.declared import Parameter
from curlew_client.command.service import Service, Where, part
from curlew_client.command.words import NotSo

Shard = Annotated[
    str | None, Parameter(help="The shard; left out: the one that has a replica at the node.")
]


def remove_node(
    node: str,
    /,
    *,
    shard: Shard = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    where: Where = Where(),
) -> int:
    """Take a node out of the replicas of its shard for good, so that another one may join.

    Refused while it leads, or too few would be in sync without it. Its data stays where it is.
    """
    service = Service(where)
    shard = shard or shard_of(service, node)
    path = f"/v1/shards/{part(shard)}/replicas/{part(node)}"
    found = service.request("DELETE", path, params={"dry_run": True})
    names = ", ".join(found["left"]) or "none"
    if dry_run:
        print_json(found) if where.json else print_fields(found)
        return Exit.DONE
    if not confirm(f"Take {node} out of the shard {shard}? Left: {names}.", yes=yes):
        return Exit.REFUSED
    done = service.request("DELETE", path)
    if where.json:
        print_json(done)
    say(f"{node} has no replica of the shard {shard} any more; left: {names}")
    return Exit.DONE


def reset_replica(
    node: str,
    /,
    *,
    shard: Shard = None,
    keep_log: Annotated[bool, Parameter(help="Keep the log, where it is as the leader's.")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    where: Where = Where(),
) -> int:
    """Have the replica of a node begin anew: its data is thrown away and copied from the leader.

    Refused while it leads, or too few would be in sync without it.
    """
    service = Service(where)
    shard = shard or shard_of(service, node)
    path = f"/v1/shards/{part(shard)}/replicas/{part(node)}/reset"
    body = {"keep_log": keep_log}
    found = service.request("POST", path, json=body, params={"dry_run": True})
    if dry_run:
        print_json(found) if where.json else print_fields(found)
        return Exit.DONE
    what = "all but its log" if keep_log else "all its data"
    question = f"Throw away {what} of the replica of {node} in the shard {shard}?"
    if not confirm(question, yes=yes):
        return Exit.REFUSED
    done = service.request("POST", path, json=body)
    if where.json:
        print_json(done)
    say(f"the replica of {node} begins anew; `curlew cluster` shows when it is in sync")
    return Exit.DONE


def shard_of(service: Service, node: str) -> str:
    """The shard that has a replica at the node."""
    replicas = {
        each["node_id"]: shard["name"]
        for shard in service.get("/v1/cluster")["shards"]
        for each in shard["replicas"]
    }
    if node not in replicas:
        known = ", ".join(sorted(replicas)) or "none"
        raise NotSo(f"no shard has a replica at the node {node!r}; nodes with replicas: {known}")
    return str(replicas[node])
