"""`curlew offsets …`: where groups are in topics."""

import time
from typing import Any

from curlew_client.command.asking import DryRun, Yes, change, confirm
from curlew_client.command.entry import Exit
from curlew_client.command.output import print_json, print_table, say
from curlew_client.command.parsing.declared import App
from curlew_client.command.service import Document, Service, Where, part
from curlew_client.command.words import NotSo, moment_ms, time_text

app = App("offsets", "Where a group is in its topics, and how to put it elsewhere.")


@app.command
def show(group: str, topic: str | None = None, /, *, where: Where = Where()) -> None:
    """The offsets that a group has committed."""
    path = f"/v1/groups/{part(group)}/offsets"
    service = Service(where)
    found = service.get(path if topic is None else f"{path}/{part(topic)}")
    rows = [{"topic": topic, **each} for each in found["offsets"]]
    if where.json:
        print_json(rows)
        return
    print_table(
        ("topic", "queue", "offset"),
        [(each["topic"], each["queue_id"], each["offset"]) for each in rows],
        empty="the group has committed nothing yet",
    )


@app.command
def ends(topic: str, at: str = "latest", /, *, where: Where = Where()) -> None:
    """The offsets of a topic's queues: latest, earliest, or at a time such as 15m."""
    moment = at if at in {"latest", "earliest"} else str(moment_ms("AT", at, _now_ms))
    found = Service(where).get(f"/v1/topics/{part(topic)}/offsets", at=moment)
    if where.json:
        print_json(found)
        return
    print_table(
        ("queue", "offset"), [(each["queue_id"], each["offset"]) for each in found["offsets"]]
    )


@app.command
def reset(
    group: str,
    topic: str | None = None,
    /,
    *,
    to: str,
    queue: tuple[int, ...] = (),
    yes: Yes = False,
    dry_run: DryRun = False,
    where: Where = Where(),
) -> int:
    """Put a group elsewhere, in one topic or in all that it reads.

    Parameters
    ----------
    to
        earliest, latest, an offset (17), so many back or on (-100, +100), or a time: 15m for so
        long ago, 2026-01-31T12:00.
    queue
        This queue only; again for more.
    """
    service = Service(where)
    path = f"/v1/groups/{part(group)}/offsets"
    path = f"{path}:reset" if topic is None else f"{path}/{part(topic)}:reset"
    body = _target(to)
    if queue:
        body["queues"] = list(queue)
    plan = service.request("POST", path, json=body, params={"dry_run": True})
    if dry_run:
        _print(plan, as_json=where.json)
        return Exit.DONE
    if not yes and not where.json:
        _print(plan, as_json=False)
    if not confirm(f"Put group {group} there?", yes=yes):
        return Exit.REFUSED
    _print(service.request("POST", path, json=body), as_json=where.json)
    return Exit.DONE


@app.command
def copy(
    group: str,
    other: str,
    topic: str,
    /,
    *,
    yes: Yes = False,
    dry_run: DryRun = False,
    where: Where = Where(),
) -> int:
    """Put OTHER where GROUP is in TOPIC."""
    service = Service(where)
    offsets = service.get(f"/v1/groups/{part(group)}/offsets/{part(topic)}")["offsets"]
    entries = [{"queue_id": each["queue_id"], "offset": each["offset"]} for each in offsets]
    if not entries:
        raise NotSo(f"the group {group!r} has committed nothing in {topic!r}")
    if not dry_run and not confirm(
        f"Put group {other} in topic {topic} where {group} is?", yes=yes
    ):
        return Exit.REFUSED
    path = f"/v1/groups/{part(other)}/offsets/{part(topic)}"
    params = {"dry_run": True} if dry_run else None
    body = {"offsets": entries, "force": True}
    shown = service.request("PUT", path, json=body, params=params)
    refused = shown.get("refused", [])
    if where.json:
        print_json(shown)
    else:
        say(f"{'would be' if dry_run else 'put'}: {len(entries) - len(refused)} queues")
        for each in refused:
            say(f"not queue {each['queue_id']}: {each['detail']}")
    return Exit.REFUSED if refused else Exit.DONE


snapshot = App("snapshot", "The offsets of a group, kept under names to go back to.")
app.command(snapshot, name="snapshot")


@snapshot.command(name="list")
def list_(group: str, /, *, where: Where = Where()) -> None:
    """What was kept of a group."""
    found = Service(where).get(f"/v1/groups/{part(group)}/snapshots")["snapshots"]
    if where.json:
        print_json(found)
        return
    print_table(
        ("snapshot", "queues", "created"),
        [(each["name"], each["queues"], time_text(each["created_ms"])) for each in found],
        empty=f"nothing is kept; `curlew offsets snapshot keep {group} NAME` keeps where it is",
    )


@snapshot.command
def keep(group: str, name: str, /, *, dry_run: DryRun = False, where: Where = Where()) -> None:
    """Keep where a group is now, under a name."""
    path = f"/v1/groups/{part(group)}/snapshots/{part(name)}"
    done = f"kept as {name}"
    change(Service(where), "PUT", path, dry_run=dry_run, as_json=where.json, done=done)


@snapshot.command
def restore(
    group: str,
    name: str,
    /,
    *,
    yes: Yes = False,
    dry_run: DryRun = False,
    where: Where = Where(),
) -> int:
    """Put a group back where it was."""
    service = Service(where)
    path = f"/v1/groups/{part(group)}/snapshots/{part(name)}:restore"
    if dry_run or not (yes or where.json):
        _print(service.request("POST", path, json={}, params={"dry_run": True}), as_json=where.json)
    if dry_run:
        return Exit.DONE
    if not confirm(f"Put group {group} there?", yes=yes):
        return Exit.REFUSED
    _print(service.request("POST", path, json={}), as_json=where.json)
    return Exit.DONE


@snapshot.command
def forget(group: str, name: str, /, *, dry_run: DryRun = False, where: Where = Where()) -> None:
    """Keep it no longer."""
    path = f"/v1/groups/{part(group)}/snapshots/{part(name)}"
    done = f"forgot {name}"
    change(Service(where), "DELETE", path, dry_run=dry_run, as_json=where.json, done=done)


def _target(to: str) -> dict[str, Any]:
    if to in {"earliest", "latest"}:
        return {"to": to}
    if to[:1] in {"+", "-"} and to[1:].isdigit():
        return {"to": "shift", "shift": int(to)}
    if to.isdigit() and len(to) < 12:
        return {"to": "offset", "offset": int(to)}
    return {"to": "timestamp", "timestamp_ms": moment_ms("--to", to, _now_ms)}


def _print(shown: Document, *, as_json: bool) -> None:
    if as_json:
        print_json(shown)
        return
    present = list(dict.fromkeys(name for each in shown["offsets"] for name in each))
    say("would be:" if shown["dry_run"] else "done:")
    print_table(present, [[each.get(name) for name in present] for each in shown["offsets"]])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
