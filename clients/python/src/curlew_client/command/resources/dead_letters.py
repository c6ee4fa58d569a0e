"""`curlew dlq …`: messages that a group gave up."""

import time
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

from curlew_client.command.asking import DryRun, Yes, confirm
from curlew_client.command.entry import Exit
from curlew_client.command.messages.shapes import json_line
from curlew_client.command.output import print_fields, print_json, print_line, print_table, say
from curlew_client.command.parsing.declared import App, Parameter
from curlew_client.command.service import Document, Service, Where, part
from curlew_client.command.words import NotSo, body_of, body_text, moment_ms, time_text

app = App("dlq", "Dead letters: list, deliver again, remove.")


class Chosen(NamedTuple):
    """Which dead letters."""

    topic: Annotated[str | None, Parameter(help="That were in this topic.")] = None
    filter: Annotated[str | None, Parameter(help="A filter expression.")] = None
    reason: Annotated[str | None, Parameter(help="With this in the reason.")] = None
    since: Annotated[str | None, Parameter(help="Dead since then: a time, or 15m.")] = None
    until: Annotated[str | None, Parameter(help="Dead before then.")] = None

    def body(self) -> dict[str, Any]:
        """As the API has it."""
        found = {
            "topic": self.topic,
            "filter": self.filter,
            "reason": self.reason,
            "from_ms": None if self.since is None else moment_ms("--since", self.since, _now_ms),
            "until_ms": None if self.until is None else moment_ms("--until", self.until, _now_ms),
        }
        return {name: value for name, value in found.items() if value is not None}


@app.command(name="list")
def list_(
    group: str,
    /,
    *,
    limit: int = 100,
    chosen: Chosen = Chosen(),
    where: Where = Where(),
) -> None:
    """The dead letters of a group, with their bodies and reasons."""
    found = _found(Service(where), group, chosen.body(), limit)
    if where.json:
        for each in found:
            print_line(json_line(each))
        return
    print_table(
        ("offset", "topic", "dead since", "attempts", "reason", "body"),
        [
            (
                each["offset"],
                each["topic"],
                time_text(each["dead_since_ms"]),
                each["attempts"],
                each.get("reason") or "",
                body_text(body_of(each), 60),
            )
            for each in found
        ],
        empty="there are no such dead letters",
    )


def _found(service: Service, group: str, params: Document, limit: int) -> Iterator[Document]:
    path = f"/v1/groups/{part(group)}/dlq/messages"
    while limit > 0:
        page = service.get(path, page_size=min(limit, 1_000), **params)
        yield from page["messages"]
        limit -= len(page["messages"])
        if not page.get("next_cursor"):
            return
        params = {**params, "cursor": page["next_cursor"]}


@app.command
def redrive(
    group: str,
    /,
    *offsets: int,
    all: bool = False,
    rate: float | None = None,
    to_topic: str | None = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    chosen: Chosen = Chosen(),
    where: Where = Where(),
) -> int:
    """Deliver dead letters again, to this group alone, and wait until that is done.

    Parameters
    ----------
    offsets
        Those at these offsets of `dlq list`.
    all
        All of them.
    rate
        At most so many a second.
    to_topic
        Into this topic instead.
    """
    service = Service(where)
    body = _selection(offsets, chosen, is_all=all)
    if rate is not None:
        body["rate_per_s"] = rate
    if to_topic is not None:
        body["to_topic"] = to_topic
    path = f"/v1/groups/{part(group)}/dlq/messages:redrive"
    plan = service.request("POST", path, json=body, params={"dry_run": True})
    if dry_run:
        print_json(plan) if where.json else print_fields(plan)
        return Exit.DONE
    if not confirm(f"Deliver {plan['matched']} dead letters of {group} again?", yes=yes):
        return Exit.REFUSED
    operation = _over(service, service.request("POST", path, json=body))
    if where.json:
        print_json(operation)
    else:
        say(f"{operation['state']}: {operation['done']} of {operation['total']} delivered again")
    return Exit.DONE if operation["state"] == "succeeded" else Exit.REFUSED


def _over(service: Service, operation: Document) -> Document:
    while operation["ended_ms"] is None:
        time.sleep(0.2)
        operation = service.get(f"/v1/operations/{part(operation['operation_id'])}")
    return operation


@app.command
def purge(
    group: str,
    /,
    *offsets: int,
    all: bool = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    chosen: Chosen = Chosen(),
    where: Where = Where(),
) -> int:
    """Remove dead letters for ever: those at OFFSETS, those chosen, or --all."""
    service = Service(where)
    body = _selection(offsets, chosen, is_all=all)
    path = f"/v1/groups/{part(group)}/dlq/messages:purge"
    plan = service.request("POST", path, json=body, params={"dry_run": True})
    if not dry_run:
        question = f"Remove {plan['removed']} dead letters of {group} for ever?"
        if not confirm(question, yes=yes):
            return Exit.REFUSED
        plan = service.request("POST", path, json=body)
    if where.json:
        print_json(plan)
    else:
        say(f"{'would remove' if dry_run else 'removed'} {plan['removed']} dead letters")
    return Exit.DONE


def _selection(offsets: tuple[int, ...], chosen: Chosen, *, is_all: bool) -> dict[str, Any]:
    body = chosen.body()
    if offsets:
        body["offsets"] = list(offsets)
    if is_all:
        body["all"] = True
    if not body:
        raise NotSo("say which: offsets, --topic, --reason, --since and so on, or --all")
    return body


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
