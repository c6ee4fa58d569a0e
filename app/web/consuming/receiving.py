"""Receiving as a group: a peek gives back at once what it saw, a take keeps it until it is settled.

A form that is sent twice gives the same messages: its token is the attempt's id.
"""

import re
from http import HTTPStatus
from typing import Final

from app.web.consuming.excerpts import with_excerpt
from app.web.consuming.groups import group_crumbs
from app.web.serving.api import Json, Refused
from app.web.serving.families import Family
from app.web.serving.page import Outcome, Page

family: Final = Family("groups")

MESSAGES_MAX: Final = 32
TAKEN_FOR_MS: Final = 300_000
"""Long enough to read and decide."""
_PEEKED_FOR_MS: Final = 10_000
"""If the page fails between receiving and giving back."""
_SETTLES: Final = {
    "ack": "acks",
    "nack": "nacks",
    "dead_letter": "dead_letters",
    "release": "releases",
}


@family.page("/groups/{group}/receive")
async def form(page: Page) -> Outcome:
    """What to receive."""
    asked = {"topic": page.query("topic"), "filter": "", "count": "10", "mode": "peek"}
    return await _shown(page, asked)


async def _shown(
    page: Page,
    asked: Json,
    messages: list[Json] | None = None,
    problem: Json | None = None,
    results: list[Json] | None = None,
) -> Outcome:
    group = page.name("group")
    document = await page.get("groups", group)
    return page.show(
        "consuming/group_receive.html",
        status=HTTPStatus.OK if problem is None else HTTPStatus.BAD_REQUEST,
        asked=asked,
        topics=[each["topic"] for each in document["subscriptions"]],
        messages=messages,
        results=results,
        may_receive=await page.may("SUB", group=group),
        count_max=MESSAGES_MAX,
        problem=problem,
        **group_crumbs(page, group),
    )


@family.act("/groups/{group}/receive")
async def receive(page: Page) -> Outcome:
    """Peek or take."""
    fields = ("topic", "filter", "count", "mode", "token")
    asked = {name: page.form.get(name, "").strip() for name in fields}
    group, is_take = page.name("group"), asked["mode"] == "take"
    digits = re.fullmatch(r"[0-9]{1,4}", asked["count"])
    body = {
        "max_messages": min(int(asked["count"]) if digits else 1, MESSAGES_MAX) or 1,
        "invisible_ms": TAKEN_FOR_MS if is_take else _PEEKED_FOR_MS,
        "attempt_id": asked["token"] or page.token,
        "filter": asked["filter"] or None,
    }
    base = ("topics", asked["topic"], "groups", group)
    try:
        way = {"body": "base64"}
        answer = await page.act("POST", *base, "messages:receive", query=way, json=body)
    except Refused as error:
        return await _shown(page, asked, problem=error.problem)
    messages: list[Json] = answer["messages"]
    if messages and not is_take:
        handles = [each["receipt_handle"] for each in messages]
        await page.act("POST", *base, "messages:settle", json={"releases": handles})
    return await _shown(page, asked, [with_excerpt(each) for each in messages])


@family.act("/groups/{group}/settle")
async def settle(page: Page) -> Outcome:
    """What is to become of messages that were taken."""
    topic, group = page.form.get("topic", ""), page.name("group")
    asked = {"topic": topic, "filter": "", "count": "10", "mode": "take"}
    handles, action = page.choices.get("handle", []), page.form.get("action", "")
    if action not in _SETTLES or not handles:
        problem = {
            "detail": page.gettext("No message is chosen; nothing was done."),
            "hint": page.gettext("Choose messages, and then what is to become of them."),
        }
        return await _shown(page, asked, problem=problem)
    reason = page.form.get("reason", "").strip() or None
    entries: list[object] = list(handles)
    if action in {"nack", "dead_letter"}:
        entries = [{"receipt_handle": handle, "reason": reason} for handle in handles]
    names = ("topics", topic, "groups", group, "messages:settle")
    answer = await page.act("POST", *names, json={_SETTLES[action]: entries})
    return await _shown(page, asked, results=answer["results"])
