"""`curlew cluster drain …`: a shard is emptied before it is taken away."""

from typing import Annotated, Final

from curlew_client.command.asking import DryRun, Yes, confirm
from curlew_client.command.entry import Exit
from curlew_client.command.output import print_json, print_line, print_table, say
from curlew_client.command.parsing.declared import Parameter
from curlew_client.command.service import Document, Service, Where, part
from curlew_client.command.words import NotSo

_TAKES: Final = {
    "all": "takes all messages",
    "keyed": "drains, and takes messages whose keys belong there",
    "none": "drains, and its keys have moved",
}


def drain(
    shard: str,
    /,
    *,
    keys: Annotated[
        bool,
        Parameter(
            help="Have keys move too: order and idempotence do not hold across this moment.",
        ),
    ] = False,
    undo: Annotated[bool, Parameter(help="Have it take messages again.")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    where: Where = Where(),
) -> int:
    """Drain a shard that is to be taken away: what is new goes to other shards.

    Says what is left in it, asked again too: exit status 1 while it is not empty.
    """
    if keys and undo:
        raise NotSo("say --keys or --undo: keys come back with --undo")
    service = Service(where)
    method, path = "DELETE" if undo else "POST", f"/v1/shards/{part(shard)}/drain"
    body = None if undo else {"keys": keys}
    found = service.request(method, path, json=body, params={"dry_run": True})
    if found["changed"] and not dry_run:
        if not confirm(_question(shard, keys=keys, undo=undo), yes=yes):
            return Exit.REFUSED
        found = service.request(method, path, json=body)
    if where.json:
        print_json(found)
    else:
        _show(found)
    return Exit.DONE if undo or dry_run or found["empty"] else Exit.REFUSED


def _question(shard: str, *, keys: bool, undo: bool) -> str:
    if undo:
        return f"Have the shard {shard} take messages again?"
    rest = ", those of keys too" if keys else "; those of keys stay"
    return f"Drain the shard {shard}? New messages go to other shards{rest}."


def _show(found: Document) -> None:
    """What is left, for people."""
    left = found["left"]
    prefix = "would be so: " if found["dry_run"] and found["changed"] else ""
    say(f"{prefix}the shard {found['shard']} {_TAKES.get(found['takes'], found['takes'])}")
    print_table(
        ("left", "messages"),
        [
            ("not consumed", left["not_consumed"]),
            ("delayed and retries", left["delayed"]),
            ("open transactions", left["transactions"]),
            ("dead letters", left["dead_letters"]),
            ("stored, consumed or not", left["stored"]),
        ],
    )
    if left["groups"]:
        print_line("")
        print_table(
            ("group", "topic", "not consumed"),
            [(each["group"], each["topic"], each["messages"]) for each in left["groups"]],
        )
    if topics := found["topics_only_here"]:
        say(f"topics with queues nowhere else, to be given more: {', '.join(topics)}")
    if found["empty"]:
        say("it is empty: stop its nodes, then curlew release-store")
