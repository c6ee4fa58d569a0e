"""`curlew delayed …`: messages that wait for their time."""

import time

from curlew_client.command.asking import DryRun, Yes, change, confirm
from curlew_client.command.entry import Exit
from curlew_client.command.output import print_json, print_table
from curlew_client.command.parsing.declared import App
from curlew_client.command.service import Service, Where, part
from curlew_client.command.words import NotSo, moment_ms, time_text
from curlew_client.wire.durations import milliseconds_of

app = App("delayed", "Messages that wait for their time: list, move, deliver now, cancel.")


@app.command(name="list")
def list_(topic: str, /, *, where: Where = Where()) -> None:
    """The delayed messages of a topic, with the handles that the other commands take."""
    service = Service(where)
    found = list(service.pages(f"/v1/topics/{part(topic)}/scheduled", "messages"))
    if where.json:
        print_json(found)
        return
    print_table(
        ("delivered at", "message", "tag", "bytes", "handle"),
        [
            (
                time_text(each["deliver_time_ms"]),
                each["message_id"],
                each["tag"] or "",
                each["body_bytes"],
                each["recall_handle"],
            )
            for each in found
        ],
        empty="no message of this topic waits",
    )


@app.command
def move(
    topic: str,
    handle: str,
    /,
    *,
    delay: str | None = None,
    at: str | None = None,
    dry_run: DryRun = False,
    where: Where = Where(),
) -> None:
    """Deliver it at another time.

    Parameters
    ----------
    delay
        After so long from now, such as 30m.
    at
        At this time.
    """
    if (delay is None) == (at is None):
        raise NotSo("give --delay or --at")
    body: dict[str, object]
    if delay is not None:
        body = {"delay": f"{milliseconds_of('--delay', delay)}ms"}
    else:
        body = {"deliver_at_ms": moment_ms("--at", str(at), _now_ms)}
    _change(where, "PATCH", topic, handle, body=body, dry_run=dry_run, done="moved")


@app.command
def deliver(topic: str, handle: str, /, *, dry_run: DryRun = False, where: Where = Where()) -> None:
    """Deliver it now."""
    _change(where, "POST", topic, handle, ":deliver", dry_run=dry_run, done="delivered")


@app.command
def cancel(
    topic: str,
    handle: str,
    /,
    *,
    yes: Yes = False,
    dry_run: DryRun = False,
    where: Where = Where(),
) -> int:
    """Never deliver it."""
    if not dry_run and not confirm("Cancel this message for ever?", yes=yes):
        return Exit.REFUSED
    _change(where, "DELETE", topic, handle, dry_run=dry_run, done="cancelled")
    return Exit.DONE


def _change(
    where: Where,
    method: str,
    topic: str,
    handle: str,
    action: str = "",
    *,
    body: object = None,
    dry_run: bool,
    done: str,
) -> None:
    path = f"/v1/topics/{part(topic)}/scheduled/{part(handle)}{action}"
    change(Service(where), method, path, body=body, dry_run=dry_run, as_json=where.json, done=done)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
