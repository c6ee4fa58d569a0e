"""`curlew node …`, `curlew cluster`, `curlew clients …` and `curlew config …`: what runs."""

from itertools import islice
from time import monotonic, sleep
from typing import Annotated

from curlew_client.command.asking import DryRun, Yes, change, confirm
from curlew_client.command.entry import Exit
from curlew_client.command.output import print_fields, print_json, print_line, print_table, say
from curlew_client.command.parsing.declared import App, Parameter
from curlew_client.command.service import Document, Service, Where, part
from curlew_client.command.shards.drains import drain
from curlew_client.command.shards.replicas import remove_node, reset_replica
from curlew_client.command.words import NotSo, pairs_of, time_text, value_of
from curlew_client.errors import ServiceError

LOOK_S = 0.1
"""Between two looks at who leads."""

app = App("node", "The node that answers: whether it is ready, and its limits.")
cluster = App("cluster", "The nodes that share the metadata, and their shards.")
hand_over = App("hand-over", "Have another node lead a shard of several replicas.")
clients = App("clients", "One client by its id: what it consumes and produces.")
config = App("config", "The settings of the node, and those that change while it runs.")
cluster.command(drain)
cluster.command(remove_node)
cluster.command(reset_replica)


@app.command
def status(*, where: Where = Where()) -> int:
    """Whether it is ready, and why not."""
    service = Service(where)
    try:
        found = service.get("/readyz")
    except ServiceError as error:
        if not error.fields:
            raise
        found = {"status": "not ready", "detail": error.detail, **error.fields}
    shown = {"url": next(iter(service.session.nodes)), **found}
    print_json(shown) if where.json else print_fields(shown)
    return Exit.DONE if found["status"] == "ready" else Exit.REFUSED


@app.command
def limits(*, where: Where = Where()) -> None:
    """Every bound of the node."""
    found = Service(where).get("/v1/limits")
    print_json(found) if where.json else print_fields(found)


@app.command
def whoami(*, where: Where = Where()) -> None:
    """Whose key this is, and its roles."""
    found = Service(where).get("/v1/whoami")
    print_json(found) if where.json else print_fields(found)


@cluster.default
@cluster.command(name="status")
def cluster_(*, where: Where = Where()) -> int:
    """Nodes and shards, and whether every shard answers: exit status 1 when one does not."""
    found = Service(where).get("/v1/cluster")
    shards = found["shards"]
    is_whole = all(each["answers"] for each in shards)
    if where.json:
        print_json(found)
        return Exit.DONE if is_whole else Exit.REFUSED
    print_table(
        ("shard", "answers", "takes", "leader", "url", "queues", "epoch"),
        [
            (
                each["name"],
                each["answers"],
                each["takes"],
                each["leader"] or "",
                each["leader_url"] or "",
                each["queues"],
                each["epoch"],
            )
            for each in shards
        ],
    )
    print_line("")
    print_table(
        ("node", "shard", "address", "zone", "version", "started", "seen"),
        [
            (
                each["node_id"],
                each["shard"],
                each["advertise_url"] or each["address"],
                each["zone"],
                each["version"],
                time_text(each["started_ms"]),
                time_text(each["seen_ms"]),
            )
            for each in found["nodes"]
        ],
    )
    return Exit.DONE if is_whole else Exit.REFUSED


@cluster.command
def events(
    *,
    limit: Annotated[int, Parameter(help="How many; the newest.")] = 50,
    where: Where = Where(),
) -> None:
    """What happened to nodes and shards, the newest first: starts, ends, leaders, fences."""
    found = list(islice(Service(where).pages("/v1/cluster/events", "events"), max(0, limit)))
    if where.json:
        print_json(found)
        return
    print_table(
        ("when", "event", "shard", "node", "epoch", "more"),
        [
            (
                time_text(each["at_ms"]),
                each["kind"],
                each["shard"] or "",
                each["node_id"] or "",
                "" if each["epoch"] is None else each["epoch"],
                each["detail"],
            )
            for each in found
        ],
        empty="nothing has happened",
    )


@hand_over.default
def hand_over_(
    shard: str,
    node: Annotated[
        str | None, Parameter(help="Its id; left out: the replica in sync that has most.")
    ] = None,
    /,
    *,
    dry_run: DryRun = False,
    where: Where = Where(),
) -> int:
    """Have another node lead a shard, and wait until it does: exit status 1 when it does not in
    `--timeout`. Nothing that is confirmed is lost; sends are refused for a fraction of a second."""
    service = Service(where)
    path = f"/v1/shards/{part(shard)}/hand-over"
    body = {} if node is None else {"node": node}
    asked = service.request("POST", path, json=body, params={"dry_run": True} if dry_run else None)
    if dry_run or not asked["changed"]:
        print_json(asked) if where.json else print_fields(asked)
        return Exit.DONE
    end_s = monotonic() + service.timeout_s
    leads = _leads(service, asked)
    while not leads and monotonic() < end_s:
        sleep(LOOK_S)
        leads = _leads(service, asked)
    if where.json:
        print_json(asked)
    elif leads:
        say(f"{asked['to']} leads the shard {shard}")
    if not leads:
        say(f"{asked['to']} does not lead the shard {shard} yet: look at `curlew cluster events`")
    return Exit.DONE if leads else Exit.REFUSED


@cluster.command
def elect(
    shard: str,
    /,
    *,
    replica: Annotated[str, Parameter(help="The id of its node.")],
    unclean: Annotated[
        bool, Parameter(help="That what others have confirmed may be lost.")
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    where: Where = Where(),
) -> int:
    """Have a replica lead that is not in sync, where all that are have been lost for good.

    What may be lost is said first. Exit status 1 when it does not lead in `--timeout`.
    """
    if not unclean:
        raise NotSo("say --unclean: what the replicas in sync alone have is given up")
    service = Service(where)
    path, body = f"/v1/shards/{part(shard)}/elect", {"replica": replica, "unclean": True}
    loss = service.request("POST", path, json=body, params={"dry_run": True})
    for line in _lines_of(loss):
        say(line)
    if dry_run:
        print_json(loss) if where.json else None
        return Exit.DONE
    if not confirm(f"Have {replica} lead the shard {shard}, and give that up?", yes=yes):
        return Exit.REFUSED
    asked = service.request("POST", path, json=body)
    end_s = monotonic() + service.timeout_s
    leads = False
    while not leads and monotonic() < end_s:
        leads = _is_led_by(service, shard, replica)
        if not leads:
            sleep(LOOK_S)
    if where.json:
        print_json(asked)
    say(
        f"{replica} leads the shard {shard}"
        if leads
        else f"{replica} does not lead the shard {shard} yet: look at `curlew cluster events`"
    )
    return Exit.DONE if leads else Exit.REFUSED


def _lines_of(loss: Document) -> list[str]:
    """What an unclean election gives up, for people."""
    known = loss["known_end"]
    upto = "nobody who answers knows how far" if known is None else f"at least up to {known}"
    return [
        f"lost: what was confirmed in the log behind {loss['lost_from']}, {upto}",
        "newest message that stays: " + (time_text(loss["newest_ms"] or None) or "none"),
        "replicas that have what is lost: " + (", ".join(loss["in_sync"]) or "none"),
    ]


def _is_led_by(service: Service, shard: str, node: str) -> bool:
    found = next(
        (each for each in service.get("/v1/cluster")["shards"] if each["name"] == shard), None
    )
    return found is not None and found["leader"] == node


def _leads(service: Service, asked: Document) -> bool:
    """Whether the node that is to lead a shard does, as the node that answers knows it."""
    shards = service.get("/v1/cluster")["shards"]
    found = next((each for each in shards if each["name"] == asked["shard"]), None)
    return found is not None and found["leader"] == asked["to"] and found["epoch"] > asked["epoch"]


@clients.command(name="show")
def show_client(client: str, /, *, where: Where = Where()) -> None:
    """What a client consumes and produces."""
    found = Service(where).get(f"/v1/clients/{part(client)}")
    print_json(found) if where.json else print_fields(found)


@clients.command
def producers(topic: str, /, *, where: Where = Where()) -> None:
    """Who sends to a topic."""
    found = list(Service(where).pages(f"/v1/topics/{part(topic)}/producers", "clients"))
    _print_clients(found, ("sent", "failed"), as_json=where.json, empty="nobody sent lately")


@clients.command
def consumers(group: str, /, *, where: Where = Where()) -> None:
    """Who consumes in a group; as `curlew group clients`."""
    found = list(Service(where).pages(f"/v1/groups/{part(group)}/clients", "clients"))
    _print_clients(found, ("kind", "in_flight"), as_json=where.json, empty="nobody consumes now")


def _print_clients(
    found: list[Document], more: tuple[str, ...], *, as_json: bool, empty: str
) -> None:
    if as_json:
        print_json(found)
        return
    print_table(
        ("client", "program", *more, "seen"),
        [
            (
                each.get("client_id") or each.get("address"),
                each.get("user_agent") or "",
                *(each.get(name) for name in more),
                time_text(each.get("last_seen_ms")),
            )
            for each in found
        ],
        empty=empty,
    )


@config.command(name="list")
def list_settings(
    prefix: str = "",
    /,
    *,
    changed: bool = False,
    where: Where = Where(),
) -> None:
    """Every setting, its value, and where that comes from.

    Parameters
    ----------
    changed
        Only those that are not as they are by default.
    """
    found = [
        each
        for each in Service(where).get("/v1/config")["settings"]
        if each["name"].startswith(prefix) and not (changed and each["source"] == "default")
    ]
    if where.json:
        print_json(found)
        return
    print_table(
        ("setting", "value", "default", "unit", "from", "changes while running"),
        [
            (
                each["name"],
                _value(each["value"]),
                _value(each["default"]),
                each["unit"] or "",
                each["source"],
                each["changeable"],
            )
            for each in found
        ],
    )


@config.command(name="set")
def set_settings(
    *settings: str, yes: Yes = False, dry_run: DryRun = False, where: Where = Where()
) -> int:
    """Change settings of all nodes while they run: `curlew config set log_level=debug`.

    `null` gives a setting back what file, environment or flag say.
    """
    if not settings:
        raise NotSo("name a setting and its value, such as log_level=debug")
    body = {name: value_of(text) for name, text in pairs_of("a setting", settings).items()}
    if not dry_run and not confirm(f"Change {', '.join(body)} on all nodes?", yes=yes):
        return Exit.REFUSED
    service = Service(where)
    done = "changed; nodes know within seconds"
    change(
        service,
        "PATCH",
        "/v1/config",
        body=body,
        dry_run=dry_run,
        as_json=where.json,
        done=done,
    )
    return Exit.DONE


def _value(value: object) -> object:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
