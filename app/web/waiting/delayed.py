"""Delayed messages: what is due when, and those of one topic, to cancel or to deliver now."""

from typing import Final
from urllib.parse import quote

from app.web.serving.api import Refused
from app.web.serving.families import Family
from app.web.serving.page import PAGE_SIZE, Moved, Outcome, Page

family: Final = Family("delayed", label="Delayed messages", path="delayed", key="l")

_OVER: Final = frozenset({"MESSAGE_NOT_FOUND", "ALREADY_DELIVERED"})


@family.page("/delayed")
async def list_all(page: Page) -> Outcome:
    """What is due next, of all topics whose names begin with `prefix`."""
    prefix, token = page.query("prefix"), page.query("page_token")
    found = await page.get("scheduled", prefix=prefix, page_token=token, page_size=PAGE_SIZE)
    return page.show(
        "waiting/delayed_topics.html",
        messages=found["messages"],
        scanned=found["scanned"],
        next_token=found["next_page_token"],
        prefix=prefix,
        token=token,
    )


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
    way = f"delayed/{quote(topic, safe='')}"
    try:
        message = await page.get("topics", topic, "scheduled", page.query("handle"))
    except Refused as error:
        return Moved(way, _over(page, error))
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
        done = _over(page, error)
    return Moved(way, done)


def _over(page: Page, error: Refused) -> str:
    """That somebody, or its time, was first. Raises the error again when it is another."""
    if error.problem["code"] not in _OVER:
        raise error
    return page.gettext("The message no longer waits: it was delivered or cancelled before.")
