"""`curlew receive`: leases messages of a group, prints them, then settles them.

A message is acked only when it is printed. What is leased and not printed, because a pipe closed or
somebody pressed Ctrl-C, is released.
"""

import sys
import time
from contextlib import suppress
from typing import Annotated, Any, Literal

from curlew_client.command.messages.shapes import json_line, line_of
from curlew_client.command.output import say
from curlew_client.command.parsing.declared import App, Parameter
from curlew_client.command.service import Document, Service, Where, part
from curlew_client.command.words import NotSo, body_of
from curlew_client.errors import CurlewError, ServiceError
from curlew_client.wire.durations import seconds_of

app = App("receive", "Lease messages of a group, print them, and ack them.")

BATCH: int = 32
WAIT_S: float = 20.0

Then = Literal["ack", "release", "nack", "dead-letter", "leave"]


@app.default
def receive(
    topic: str,
    /,
    *,
    group: Annotated[str, Parameter(name=("--group", "-g"))],
    limit: Annotated[int, Parameter(name=("--limit", "-n"))] = 1,
    follow: Annotated[bool, Parameter(name=("--follow", "-f"))] = False,
    wait: str = "0s",
    filter: str | None = None,
    invisible: str | None = None,
    then: Then = "ack",
    raw: bool = False,
    where: Where = Where(),
) -> None:
    """Lease messages of a group, print them, and ack them.

    Parameters
    ----------
    group
        The consumer group.
    limit
        At most so many messages.
    follow
        Go on until Ctrl-C, or until `--limit` if it is given.
    wait
        How long to wait for the first message.
    filter
        A tag expression (created || paid), or sql: and a condition.
    invisible
        How long the lease is, such as 30s; the group's setting says it otherwise.
    then
        What becomes of a message that is printed: ack; release (others get it at once, no attempt
        is counted); nack (it comes again after the group's delay); dead-letter; leave (the lease
        ends by itself; --json has the receipt handle).
    raw
        Only the bodies, byte by byte.
    """
    if limit < 1:
        raise NotSo(f"--limit is {limit}; it is 1 or more")
    service = Service(where)
    left = None if follow and limit == 1 else limit
    until_s = time.monotonic() + seconds_of("--wait", wait)
    path = f"/v1/topics/{part(topic)}/groups/{part(group)}/messages"
    count = 0
    while left is None or left > 0:
        wait_s = WAIT_S if follow else min(max(until_s - time.monotonic(), 0.0), WAIT_S)
        leased = _lease(service, path, min(left or BATCH, BATCH), wait_s, filter, invisible)
        if leased:
            _print_and_settle(service, path, leased, then, as_json=where.json, raw=raw)
            count += len(leased)
            left = None if left is None else left - len(leased)
        elif not follow and time.monotonic() >= until_s:
            break
        if not follow and count:
            until_s = 0.0
    if count == 0:
        say(f"no message of {topic} is there for {group}")


def _lease(
    service: Service,
    path: str,
    most: int,
    wait_s: float,
    filter_text: str | None,
    invisible: str | None,
) -> list[Document]:
    params = {
        "max_messages": most,
        "wait": f"{wait_s * 1_000:.0f}ms",
        "filter": filter_text,
        "invisible": invisible,
        "client_id": service.session.client_id,
    }
    found = service.request("POST", f"{path}:receive", params=params, wait_s=wait_s)
    return list(found.get("messages", ()))


def _print_and_settle(
    service: Service, path: str, leased: list[Document], then: Then, *, as_json: bool, raw: bool
) -> None:
    printed: list[str] = []
    rest = [str(shown["receipt_handle"]) for shown in leased]
    try:
        for shown in leased:
            if raw:
                sys.stdout.buffer.write(body_of(shown) or b"")
                sys.stdout.buffer.flush()
            else:
                sys.stdout.write(f"{json_line(shown) if as_json else line_of(shown)}\n")
                sys.stdout.flush()
            printed.append(rest.pop(0))
    finally:
        if rest:
            with suppress(CurlewError):
                service.request("POST", f"{path}:settle", json={"releases": rest})
        if printed and then != "leave":
            _settle(service, path, then, printed)


def _settle(service: Service, path: str, then: Then, handles: list[str]) -> None:
    entries: dict[str, list[Any]]
    if then == "nack":
        entries = {"nacks": [{"receipt_handle": handle} for handle in handles]}
    elif then == "dead-letter":
        reason = "given up on the command line"
        entries = {
            "dead_letters": [{"receipt_handle": handle, "reason": reason} for handle in handles]
        }
    else:
        entries = {"acks" if then == "ack" else "releases": handles}
    answer = service.request("POST", f"{path}:settle", json=entries)
    failed = [each for each in answer["results"] if "error" in each]
    if failed:
        error = failed[0]["error"]
        raise ServiceError(
            f"{len(failed)} of {len(answer['results'])} messages were not settled, and will come"
            f" again: {error.get('detail', '')}",
            code=error["code"],
            status=failed[0].get("status", 0),
        )
