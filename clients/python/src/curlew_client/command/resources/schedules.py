"""`curlew schedule …`: messages that are sent by the clock."""

from typing import Annotated, Any

from curlew_client.command.asking import DryRun, Yes, change, confirm
from curlew_client.command.entry import Exit
from curlew_client.command.output import print_fields, print_json, print_table
from curlew_client.command.parsing.declared import App, Parameter
from curlew_client.command.service import Service, Where, part
from curlew_client.command.words import pairs_of, time_text

app = App("schedule", "Messages that are sent by the clock: list, show, make, pause, delete.")


@app.command(name="list")
def list_(*, where: Where = Where()) -> None:
    """All schedules, and when each is due next."""
    found = list(Service(where).pages("/v1/schedules", "schedules"))
    if where.json:
        print_json(found)
        return
    print_table(
        ("schedule", "cron", "zone", "topic", "paused", "next"),
        [
            (
                each["name"],
                each["cron"],
                each["timezone"],
                each["topic"],
                each["paused"],
                time_text(next(iter(each["next_due_times_ms"]), None)),
            )
            for each in found
        ],
        empty="there are no schedules",
    )


@app.command
def show(name: str, /, *, where: Where = Where()) -> None:
    """A schedule, its message, and its next due times."""
    found = Service(where).get(f"/v1/schedules/{part(name)}")
    if where.json:
        print_json(found)
        return
    found["next_due_times_ms"] = [time_text(each) for each in found["next_due_times_ms"]]
    print_fields(found)


@app.command
def put(
    name: str,
    /,
    *,
    cron: str,
    topic: str,
    text: str,
    timezone: str | None = None,
    tag: str | None = None,
    key: tuple[str, ...] = (),
    property: Annotated[tuple[str, ...], Parameter(name=("--property", "-p"))] = (),
    missed: str | None = None,
    dry_run: DryRun = False,
    where: Where = Where(),
) -> None:
    """Make or change a schedule.

    `curlew schedule put nightly --cron '0 3 * * *' --topic jobs --text '{"job": "clean"}'`

    Parameters
    ----------
    cron
        Five fields: minute, hour, day, month, weekday.
    text
        The body of the message.
    timezone
        Whose clock, such as Europe/Berlin; else UTC.
    missed
        What becomes of due times that nobody was there for: skip or fire_once.
    """
    message: dict[str, Any] = {"text": text}
    if tag is not None:
        message["tag"] = tag
    if key:
        message["keys"] = list(key)
    if property:
        message["properties"] = pairs_of("--property", property)
    body: dict[str, Any] = {"cron": cron, "topic": topic, "message": message}
    if timezone is not None:
        body["timezone"] = timezone
    if missed is not None:
        body["missed"] = missed
    _change(where, "PUT", name, body, dry_run=dry_run, done=f"schedule {name} is kept")


@app.command
def pause(name: str, /, *, dry_run: DryRun = False, where: Where = Where()) -> None:
    """Send nothing until it is resumed."""
    _change(where, "PATCH", name, {"paused": True}, dry_run=dry_run, done=f"paused {name}")


@app.command
def resume(name: str, /, *, dry_run: DryRun = False, where: Where = Where()) -> None:
    """Send again."""
    _change(where, "PATCH", name, {"paused": False}, dry_run=dry_run, done=f"resumed {name}")


@app.command
def delete(
    name: str, /, *, yes: Yes = False, dry_run: DryRun = False, where: Where = Where()
) -> int:
    """Delete a schedule."""
    if not dry_run and not confirm(f"Delete schedule {name}?", yes=yes):
        return Exit.REFUSED
    _change(where, "DELETE", name, None, dry_run=dry_run, done=f"deleted {name}")
    return Exit.DONE


def _change(where: Where, method: str, name: str, body: Any, *, dry_run: bool, done: str) -> None:
    path = f"/v1/schedules/{part(name)}"
    change(Service(where), method, path, body=body, dry_run=dry_run, as_json=where.json, done=done)
