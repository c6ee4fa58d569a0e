"""`curlew pull`: reads queues, and takes nothing away."""

import sys
import time
from collections.abc import Iterator
from typing import Annotated, Any

from curlew_client.command.messages.shapes import COLUMNS, json_line, row_of
from curlew_client.command.output import print_line, print_table, say
from curlew_client.command.parsing.declared import App, Parameter
from curlew_client.command.service import Document, Service, Where, part
from curlew_client.command.words import NotSo, body_of, moment_ms

app = App("pull", "Read a queue, or all of a topic, from an offset on; takes nothing away.")

PAGE_MESSAGES: int = 1_000


@app.default
def pull(
    topic: str,
    /,
    *,
    queue: int | None = None,
    offset: int | None = None,
    since: Annotated[str | None, Parameter(name=("--from", "--since"))] = None,
    tail: int | None = None,
    limit: int = 100,
    filter: str | None = None,
    raw: bool = False,
    where: Where = Where(),
) -> None:
    """Read a queue, or all of a topic, from an offset on; takes nothing away.

    Parameters
    ----------
    queue
        This queue; else all, one after the other.
    offset
        Begin here; else with the oldest message.
    since
        Begin with what was stored at this time: 2026-01-31T12:00, or 15m for so long ago.
    tail
        Begin so many messages before the end.
    limit
        At most so many messages; 0: all that are there now.
    filter
        A tag expression (created || paid), or sql: and a condition.
    raw
        Only the bodies, byte by byte, one after the other.
    """
    if limit < 0:
        raise NotSo(f"--limit is {limit}; it is 0 (all) or more")
    service = Service(where)
    start = _start(offset, since, tail)
    found = read(service, topic, queue, start, limit or None, filter)
    if raw:
        for shown in found:
            sys.stdout.buffer.write(body_of(shown) or b"")
        sys.stdout.buffer.flush()
    elif where.json:
        for shown in found:
            print_line(json_line(shown))
    else:
        rows = [row_of(shown) for shown in found]
        print_table(COLUMNS, rows, empty="there is nothing to read there")
        if limit and len(rows) == limit:
            say(f"{limit} messages are shown; --limit shows more")


def _start(offset: int | None, since: str | None, tail: int | None) -> Document:
    """Where to begin, as the API has it."""
    if len([each for each in (offset, since, tail) if each is not None]) > 1:
        raise NotSo("give one of --offset, --from and --tail")
    if offset is not None:
        return {"offset": offset}
    if since is not None:
        return {"timestamp_ms": moment_ms("--from", since, _now_ms)}
    return {"offset": 0, "clamp": True} if tail is None else {"tail": tail}


def read(
    service: Service,
    topic: str,
    queue: int | None,
    start: Document,
    limit: int | None,
    filter_text: str | None,
) -> Iterator[Document]:
    """The messages of a queue or of all, up to where their ends are when it comes to them."""
    if queue is not None:
        queues = [queue]
    else:
        settings = service.get(f"/v1/topics/{part(topic)}")
        queues = list(range(int(settings["queues"])))
    left = limit
    for queue_id in queues:
        for shown in _of_queue(service, topic, queue_id, start, left, filter_text):
            yield shown
            left = None if left is None else left - 1
        if left == 0:
            return


def _of_queue(
    service: Service,
    topic: str,
    queue_id: int,
    start: Document,
    limit: int | None,
    filter_text: str | None,
) -> Iterator[Document]:
    path = f"/v1/topics/{part(topic)}/queues/{queue_id}/messages"
    params: dict[str, Any] = dict(start)
    end: int | None = None
    while True:
        most = PAGE_MESSAGES if limit is None else min(limit, PAGE_MESSAGES)
        page = service.get(path, **params, max_messages=most, filter=filter_text)
        yield from page["messages"]
        if end is None:
            end = int(page["max_offset"])
        if limit is not None:
            limit -= len(page["messages"])
        at = int(page["next_offset"])
        if at >= end or limit == 0:
            return
        params = {"offset": at}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
