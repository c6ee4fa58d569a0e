"""Delayed messages: which topics have some, and those of one topic, to cancel or to deliver now."""

from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from app.web.serving.api import Json, Refused
from app.web.serving.families import Family
from app.web.serving.page import PAGE_SIZE, Moved, Outcome, Page

family: Final = Family("delayed", label="Delayed messages", path="delayed", key="l")


@family.page("/delayed")
async def list_topics(page: Page) -> Outcome:
    """Topics whose names begin with `prefix`, and when their next delayed message is due."""
    prefix, token = page.query("prefix"), page.query("page_token")
    found = await page.get("topics", prefix=prefix, page_token=token, page_size=PAGE_SIZE)
    rows = [(topic, await _first(page, topic["name"])) for topic in found["topics"]]
    return page.show(
        "waiting/delayed_topics.html",
        rows=[(topic, first) for topic, first in rows if first],
        shown=len(rows),
        next_token=found.get("next_page_token"),
        prefix=prefix,
        token=token,
    )


async def _first(page: Page, topic: str) -> Json | None:
    """The delayed message that is due next."""
    try:
        names = ("topics", topic, "scheduled")
        found = await page.act("GET", *names, query={"page_size": 1})
    except Refused as error:
        if error.status in {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}:
            return None
        raise
    messages: list[Json] = found["messages"]
    return messages[0] if messages else None


@family.page("/delayed/{topic}")
async def of_topic(page: Page) -> Outcome:
    """What waits in one topic, in the order of its times."""
    topic, token = page.name("topic"), page.query("page_token")
    found = await page.get("topics", topic, "scheduled", page_token=token, page_size=PAGE_SIZE)
    return page.show(
        "waiting/delayed.html",
        topic=topic,
        messages=found["messages"],
        scanned=found["scanned"],
        next_token=found["next_page_token"],
        token=token,
        may_change=await page.may("PUB", topic=topic),
        crumbs=[(page.gettext("Delayed messages"), "delayed")],
    )


@family.page("/delayed/{topic}/cancel")
async def confirm(page: Page) -> Outcome:
    """What would be cancelled."""
    topic = page.name("topic")
    message = await page.get("topics", topic, "scheduled", page.query("handle"))
    way = f"delayed/{quote(topic, safe='')}"
    crumbs = [(page.gettext("Delayed messages"), "delayed"), (topic, way)]
    return page.show("waiting/cancel.html", topic=topic, message=message, crumbs=crumbs)


@family.act("/delayed/{topic}/cancel")
async def cancel(page: Page) -> Outcome:
    """Take one back: nobody gets it."""
    return await _change(page, "DELETE", "", page.gettext("The message is cancelled."))


@family.act("/delayed/{topic}/deliver")
async def deliver(page: Page) -> Outcome:
    """Give one to its readers now."""
    return await _change(page, "POST", ":deliver", page.gettext("The message is delivered."))


async def _change(page: Page, method: str, verb: str, done: str) -> Outcome:
    topic = page.name("topic")
    handle = page.form.get("handle", "")
    way = f"delayed/{quote(topic, safe='')}"
    try:
        await page.act(method, "topics", topic, "scheduled", f"{handle}{verb}")
    except Refused as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        done = page.gettext("The message no longer waits: it was delivered or cancelled before.")
    return Moved(way, done)
