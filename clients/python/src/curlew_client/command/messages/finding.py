"""`curlew browse` and `curlew message …`: messages by what is in them, and what became of one."""

import sys
import time
from collections.abc import Iterator
from typing import Annotated

from curlew_client.command.messages.shapes import COLUMNS, json_line, row_of
from curlew_client.command.output import print_fields, print_json, print_line, print_table, say
from curlew_client.command.parsing.declared import App, Parameter
from curlew_client.command.service import Document, Service, Where, part
from curlew_client.command.words import NotSo, body_of, body_text, moment_ms, span_text, time_text

app = App("message", "One message: what it is, where it is, what became of it.")
browse = App("browse", "Find messages of a topic by key, tag, property, text or time.")

PAGE_MESSAGES: int = 500


@browse.default
def browse_(
    topic: str,
    /,
    *,
    key: str | None = None,
    tag: str | None = None,
    property: str | None = None,
    text: str | None = None,
    unique_id: str | None = None,
    filter: str | None = None,
    since: Annotated[str | None, Parameter(name=("--since", "--from"))] = None,
    until: str | None = None,
    oldest_first: bool = False,
    limit: int = 50,
    where: Where = Where(),
) -> None:
    """Find messages of a topic, the newest first.

    Parameters
    ----------
    key
        One of a message's keys.
    property
        name=value.
    text
        A part of the body; capitals count.
    unique_id
        The id that its producer gave.
    filter
        A tag expression (created || paid), or sql: and a condition.
    since
        Stored then or later: 2026-01-31T12:00, or 15m for so long ago.
    until
        Stored before then.
    """
    if limit < 1:
        raise NotSo(f"--limit is {limit}; it is 1 or more")
    params: Document = {
        "key": key,
        "tag": tag,
        "property": property,
        "text": text,
        "unique_id": unique_id,
        "filter": filter,
        "from_ms": None if since is None else moment_ms("--since", since, _now_ms),
        "until_ms": None if until is None else moment_ms("--until", until, _now_ms),
        "direction": "forward" if oldest_first else "backward",
    }
    found = _found(Service(where), topic, params, limit)
    if where.json:
        for shown in found:
            print_line(json_line(shown))
        return
    rows = [(*row_of(shown)[:-1], shown["message_id"], row_of(shown)[-1]) for shown in found]
    print_table((*COLUMNS[:-1], "message", "body"), rows, empty="no such message is there")
    if len(rows) == limit:
        say(f"{limit} messages are shown; --limit shows more")


def _found(service: Service, topic: str, params: Document, limit: int) -> Iterator[Document]:
    path = f"/v1/topics/{part(topic)}/messages"
    while limit > 0:
        page = service.get(path, page_size=min(limit, PAGE_MESSAGES), **params)
        yield from page["messages"]
        limit -= len(page["messages"])
        if not page.get("next_cursor"):
            return
        params = {**params, "cursor": page["next_cursor"]}


@app.command
def show(
    topic: str,
    message: str,
    /,
    *,
    raw: bool = False,
    where: Where = Where(),
) -> None:
    """A message, with its body.

    Parameters
    ----------
    raw
        Only the body, byte by byte.
    """
    found = Service(where).get(f"/v1/topics/{part(topic)}/messages/{part(message)}")
    if raw:
        sys.stdout.buffer.write(body_of(found) or b"")
        sys.stdout.buffer.flush()
    elif where.json:
        print_json(found)
    else:
        shown = {name: value for name, value in found.items() if name not in _BODIES}
        for name in ("born_time_ms", "store_time_ms"):
            shown[name.removesuffix("_ms")] = time_text(shown.pop(name))
        print_fields({**shown, "body": body_text(body_of(found))})


_BODIES = frozenset({"text", "body", "body_base64"})


@app.command(name="where")
def where_is(
    topic: str,
    message: str,
    /,
    *,
    group: Annotated[str, Parameter(name=("--group", "-g"))],
    where: Where = Where(),
) -> None:
    """Where a message is for a group: why it is, or is not, delivered."""
    path = f"/v1/topics/{part(topic)}/messages/{part(message)}/delivery"
    found = Service(where).get(path, group=group)
    if where.json:
        print_json(found)
        return
    found.pop("subscriptions")
    found["until"] = time_text(found.pop("until_ms"))
    print_fields({name: value for name, value in found.items() if value not in {None, ""}})


@app.command
def trace(topic: str, message: str, /, *, group: str | None = None, where: Where = Where()) -> None:
    """What became of a message: who sent it, each delivery, and how it ended."""
    path = f"/v1/topics/{part(topic)}/messages/{part(message)}/trace"
    found = Service(where).get(path, group=group)
    if where.json:
        print_json(found)
        return
    producer = found["producer"]
    sent = f"stored {time_text(found['store_time_ms'])} in queue {found['queue_id']}"
    by = f" by {producer['client_id'] or producer['address']}" if producer else ""
    print_line(f"{sent} at offset {found['queue_offset']}{by}")
    if not found["is_complete"]:
        say("the trail is not complete: not every delivery of this topic is traced")
    print_table(
        ("group", "attempt", "delivered", "took", "result", "client", "reason"),
        [
            (
                each["group"],
                each["attempt"],
                time_text(each["delivered_ms"]),
                span_text(each["duration_ms"]),
                each["result"] or "",
                each["client_id"] or "",
                each["reason"] or "",
            )
            for each in found["deliveries"]
        ],
        empty="it was delivered to nobody yet",
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
