"""Messages of a topic: looked through with every combination of direction, beginning, queue and
conditions; and one message with what became of it.

A look is bounded: it says how many messages it looked at and goes on from there. The API browses
all queues by time; one queue, and a place in it, are chosen from that here.
"""

import base64
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from app.web.messaging.message_bodies import FORMS, shown_body, with_preview
from app.web.messaging.topics import groups_of
from app.web.serving.api import Asked, Refused, address
from app.web.serving.families import Family
from app.web.serving.page import PAGE_SIZE, Outcome, Page

family: Final = Family("topics")

LOOKS_MAX: Final = 8
"""Browses that one page makes until it has something to show."""
_TEXTS: Final = ("key", "unique_id", "tag", "property", "text", "filter")
_DIRECTIONS: Final = ("backward", "forward")


class Seek(NamedTuple):
    """Where a look begins, and what it keeps."""

    direction: str
    queue: int | None
    offset: int | None
    from_ms: int | None
    until_ms: int | None

    def keeps(self, message: dict[str, Any]) -> bool:
        """Whether it is of the queue, and not before the offset in the direction."""
        if self.queue is not None and message["queue_id"] != self.queue:
            return False
        if self.offset is None or self.queue is None:
            return True
        place: int = message["queue_offset"]
        return place >= self.offset if self.direction == "forward" else place <= self.offset


@family.page("/topics/{topic}/messages")
async def look_through(page: Page) -> Outcome:
    """A page of messages."""
    topic = page.name("topic")
    settings = await page.get("topics", topic)
    values: dict[str, Any] = {"topic": topic, "tab": "messages", "settings": settings}
    values |= {name: page.query(name) for name in (*_TEXTS, "queue", "offset", "from", "until")}
    values |= {"direction": page.query("direction") or "backward", "problem": None}
    try:
        seek = await _seek(page, topic)
        rows, scanned, cursor = await _found(page, topic, seek)
    except Refused as error:
        is_of_what_was_asked = error.status in {400, 404, 422} or error.status >= 500
        if not is_of_what_was_asked or error.problem["code"] == "TOPIC_NOT_FOUND":
            raise
        values |= {"problem": error.problem, "rows": [], "scanned": 0, "cursor": None}
        return page.show("messaging/messages.html", status=error.status, **values)
    values |= {"rows": rows, "scanned": scanned, "cursor": cursor}
    values["is_filtered"] = any(page.query(name) for name in (*_TEXTS, "queue", "from", "until"))
    return page.show("messaging/messages.html", **values)


async def _seek(page: Page, topic: str) -> Seek:
    direction = page.query("direction")
    if direction not in _DIRECTIONS:
        direction = _DIRECTIONS[0]
    queue, offset = page.number("queue"), page.number("offset")
    from_ms, until_ms = _moment(page, "from"), _moment(page, "until")
    for name, number in (("queue", queue), ("offset", offset)):
        if number is None and page.query(name):
            raise _unclear(page.gettext("This is no whole number: %s") % page.query(name))
    if offset is not None and queue is None:
        raise _unclear(page.gettext("An offset is one of a queue: choose the queue too."))
    if queue is not None and offset is not None and not page.query("cursor"):
        begins_ms = await _time_of(page, topic, queue, offset)
        if begins_ms is not None and direction == "forward":
            from_ms = max(begins_ms, from_ms or 0)
        elif begins_ms is not None:
            until_ms = min(begins_ms + 1, until_ms or begins_ms + 1)
    return Seek(direction, queue, offset, from_ms, until_ms)


async def _time_of(page: Page, topic: str, queue: int, offset: int) -> int | None:
    """When the message at the place was stored, or the next one that is there."""
    query: Asked = {"offset": max(offset, 0), "max_messages": 1, "clamp": "true", "body": "base64"}
    where = address("topics", topic, "queues", str(queue), "messages", query=query)
    found = (await page.api.ask("GET", where)).json()["messages"]
    return found[0]["store_time_ms"] if found else None


async def _found(page: Page, topic: str, seek: Seek) -> tuple[list[Any], int, str | None]:
    rows: list[Any] = []
    scanned = 0
    query: dict[str, Any] = {name: page.query(name) for name in _TEXTS}
    query |= {"from_ms": seek.from_ms, "until_ms": seek.until_ms, "direction": seek.direction}
    cursor: str | None = page.query("cursor") or None
    for look in range(LOOKS_MAX):
        query |= {"page_size": PAGE_SIZE, "cursor": cursor, "body": "base64"}
        ask = page.get if look == 0 else page.api.get
        found = await ask("topics", topic, "messages", **query)
        scanned += found["scanned"]
        rows += [with_preview(each) for each in found["messages"] if seek.keeps(each)]
        cursor = found.get("next_cursor")
        if cursor is None or len(rows) >= PAGE_SIZE or (rows and seek.queue is None):
            break
    return rows, scanned, cursor


def _moment(page: Page, name: str) -> int | None:
    """A time that was typed: epoch milliseconds, or a date with a time in UTC."""
    number, text = page.number(name), page.query(name)
    if number is not None or not text:
        return number
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        detail = page.gettext("This is no time: %s") % text
        hint = page.gettext("For instance 2026-05-04 10:20, in UTC, or epoch milliseconds.")
        raise _unclear(detail, hint) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1_000)


def _unclear(detail: str, hint: str = "") -> Refused:
    return Refused(422, {"detail": detail, "hint": hint})


@family.page("/topics/{topic}/messages/{message_id}")
async def one_message(page: Page) -> Outcome:
    """A message: its properties, its body, and what became of it in each group."""
    topic, message_id = page.name("topic"), page.name("message_id")
    message = await page.get("topics", topic, "messages", message_id, body="base64")
    body = base64.b64decode(message.get("body_base64", ""))
    asked = page.query("group")
    groups = await groups_of(page, topic)
    standings, is_known = [], True
    for group in dict.fromkeys([*([asked] if asked else []), *groups.names]):
        delivery = ("topics", topic, "messages", message_id, "delivery")
        found = await page.find(*delivery, group=group)
        if found is not None:
            standings.append(found)
        elif page.is_missing(*delivery, group=group):  # nor is it for the others: of one queue all
            break
        elif group == asked:
            is_known = False
    is_complete = not page.missing
    trace = await page.find("topics", topic, "messages", message_id, "trace")
    return page.show(
        "messaging/message.html",
        topic=topic,
        message=message,
        body=shown_body(body, page.query("as")),
        forms=FORMS,
        standings=standings,
        asked=asked,
        is_known=is_known,
        is_complete=is_complete,
        is_whole=groups.is_whole,
        trace=trace,
        may_publish=await page.may("PUB", topic=topic),
    )
