"""`curlew group …`."""

from typing import Annotated

from curlew_client.command.asking import DryRun, Yes, change, confirm
from curlew_client.command.entry import Exit
from curlew_client.command.output import print_fields, print_json, print_table
from curlew_client.command.parsing.declared import App, Parameter
from curlew_client.command.service import Service, Where, part
from curlew_client.command.settings import Settings, change_settings, make, readable
from curlew_client.command.words import time_text

app = App("group", "List, show, make, change, pause and delete consumer groups.")


@app.command(name="list")
def list_(prefix: str = "", /, *, where: Where = Where()) -> None:
    """All groups, or those that begin with PREFIX."""
    found = list(Service(where).pages("/v1/groups", "groups", prefix=prefix))
    if where.json:
        print_json(found)
        return
    print_table(
        ("group", "reads", "order", "mode", "paused", "attempts", "made"),
        [
            (
                each["name"],
                [one["topic"] for one in each["subscriptions"]],
                each["order"],
                each["mode"],
                each["paused"],
                each["max_attempts"],
                time_text(each["created_ms"]),
            )
            for each in found
        ],
        empty=f"no group begins with {prefix!r}" if prefix else "there are no groups",
    )


@app.command
def show(group: str, /, *, where: Where = Where()) -> None:
    """The settings of a group, and the topics that it reads."""
    found = Service(where).get(f"/v1/groups/{part(group)}")
    if where.json:
        print_json(found)
        return
    subscriptions = found.pop("subscriptions")
    print_fields(readable(found))
    print_table(
        ("topic", "reads by", "since"),
        [
            (each["topic"], each["consumption"], time_text(each["since_ms"]))
            for each in subscriptions
        ],
        empty="it reads no topic yet",
    )


@app.command
def create(
    group: str,
    /,
    *,
    order: str | None = None,
    start: str | None = None,
    max_attempts: int | None = None,
    settings: Settings = (),
    dry_run: DryRun = False,
    where: Where = Where(),
) -> None:
    """Make a group. One that exists is refused: `group set` changes it.

    Parameters
    ----------
    order
        concurrent or fifo.
    start
        Where it begins in a topic: earliest or latest.
    max_attempts
        After so many failed deliveries a message is a dead letter.
    """
    given = {"order": order, "start": start, "max_attempts": max_attempts}
    make(where, "group", group, given, settings, dry_run=dry_run)


@app.command(name="set")
def set_(
    group: str,
    /,
    *settings: str,
    dry_run: DryRun = False,
    where: Where = Where(),
) -> None:
    """Change settings: `curlew group set billing max_attempts=5 invisible=1m`.

    `null` gives a setting its default back.
    """
    change_settings(where, "group", group, settings, example="max_attempts=5", dry_run=dry_run)


@app.command
def pause(group: str, /, *, dry_run: DryRun = False, where: Where = Where()) -> None:
    """Deliver nothing to the group until it is resumed."""
    path = f"/v1/groups/{part(group)}:pause"
    done = f"paused group {group}"
    change(Service(where), "POST", path, dry_run=dry_run, as_json=where.json, done=done)


@app.command
def resume(group: str, /, *, dry_run: DryRun = False, where: Where = Where()) -> None:
    """Deliver to the group again."""
    path = f"/v1/groups/{part(group)}:resume"
    done = f"resumed group {group}"
    change(Service(where), "POST", path, dry_run=dry_run, as_json=where.json, done=done)


@app.command
def clients(group: str, /, *, where: Where = Where()) -> None:
    """Who consumes in a group."""
    found = list(Service(where).pages(f"/v1/groups/{part(group)}/clients", "clients"))
    if where.json:
        print_json(found)
        return
    print_table(
        ("client", "kind", "topics", "in flight", "1/s", "assigned", "seen", "program"),
        [
            (
                each["client_id"] or each["address"],
                each["kind"],
                [one["topic"] for one in each["topics"]],
                each["in_flight"],
                each["rate_per_s"],
                each["assigned"],
                time_text(each["last_seen_ms"]),
                each["user_agent"],
            )
            for each in found
        ],
        empty="nobody consumes in this group now",
    )


@app.command
def members(
    group: str,
    /,
    *,
    rebalances: Annotated[bool, Parameter(help="The last changes too.")] = False,
    where: Where = Where(),
) -> None:
    """The members that have queues assigned, and which."""
    service = Service(where)
    found = service.get(f"/v1/groups/{part(group)}/members")
    if rebalances:
        found["rebalances"] = service.get(f"/v1/groups/{part(group)}/rebalances")["rebalances"]
    print_json(found) if where.json else print_fields(found)


@app.command
def delete(
    group: str,
    /,
    *,
    yes: Yes = False,
    dry_run: DryRun = False,
    where: Where = Where(),
) -> int:
    """Delete a group with its offsets and its dead letters."""
    service = Service(where)
    path = f"/v1/groups/{part(group)}"
    if not dry_run:
        dead = service.get(f"{path}/dlq")["messages"]
        question = f"Delete group {group} with its offsets and {dead} dead letters for ever?"
        if not confirm(question, yes=yes):
            return Exit.REFUSED
    done = f"deleted group {group}"
    change(service, "DELETE", path, dry_run=dry_run, as_json=where.json, done=done)
    return Exit.DONE
