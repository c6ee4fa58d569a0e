"""The list of topics, and one topic: its queues, groups and settings; making and deleting one."""

import re
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from app.web.serving.api import Asked, Refused, address
from app.web.serving.families import LIVE_S, Family
from app.web.serving.page import PAGE_SIZE, Moved, Outcome, Page
from app.web.serving.settings_form import Setting, change_settings, field_texts

family: Final = Family("topics", label="Topics", path="topics", key="t")

QUEUES_SHOWN_MAX: Final = 64
"""Of one topic, which may have 1,024; the JSON behind the page has all."""
QUEUES_WITH_TIMES_MAX: Final = 16
"""Of more queues, it is not looked up when each was last sent to."""
GROUPS_LOOKED_AT_MAX: Final = 1_000
GROUPS_SHOWN_MAX: Final = 50
_TYPES: Final = ("normal", "fifo", "delay", "transaction")
SETTINGS: Final = (
    Setting("queues"),
    Setting("write_queues"),
    Setting("type", _TYPES),
    Setting("flush", ("sync", "async")),
    Setting("replication", ("", "sync", "async")),
    Setting("retention"),
    Setting("permission", ("rw", "r", "w", "none")),
    Setting("max_body_bytes"),
    Setting("max_rate"),
    Setting("max_stored_bytes"),
    Setting("trace", ("on", "sampled", "off")),
    Setting("trace_rate"),
)
_QUEUES: Final = re.compile(r"[0-9]{1,5}")


@family.page("/topics")
async def list_topics(page: Page) -> Outcome:
    """Those whose names begin with `prefix`, from `page_token` on."""
    prefix, token = page.query("prefix"), page.query("page_token")
    found = await page.get("topics", prefix=prefix, page_token=token, page_size=PAGE_SIZE)
    return page.show(
        "messaging/topics.html",
        topics=found["topics"],
        next_token=found.get("next_page_token"),
        prefix=prefix,
        token=token,
        types=_TYPES,
        problem=None,
    )


@family.act("/topics")
async def make_topic(page: Page) -> Outcome:
    """Make one; one that is there stays as it is."""
    name, queues = page.form.get("name", "").strip(), page.form.get("queues", "")
    wanted: dict[str, Any] = {"type": page.form.get("type", "")}
    if _QUEUES.fullmatch(queues):
        wanted["queues"] = int(queues)
    try:
        await page.api.ask(
            "PUT", address("topics", name or "-"), json=wanted, headers={"If-None-Match": "*"}
        )
    except Refused as error:
        found = await page.get("topics", page_size=PAGE_SIZE)
        values = {"prefix": "", "token": "", "types": _TYPES, "problem": error.problem}
        return page.show(
            "messaging/topics.html",
            status=error.status,
            topics=found["topics"],
            next_token=found.get("next_page_token"),
            **values,
        )
    return Moved(f"topics/{name}", page.gettext("The topic is made."))


@family.page("/topics/{topic}", live_s=LIVE_S)
async def one_topic(page: Page) -> Outcome:
    """Its queues and what goes through it."""
    topic = page.name("topic")
    stats = await page.part("topics", topic, "stats", step="15s")
    queues = [] if stats is None else stats["queues"][:QUEUES_SHOWN_MAX]
    times: dict[int, int | None] = {}
    if stats is not None and len(stats["queues"]) <= QUEUES_WITH_TIMES_MAX:
        for each in queues:
            times[each["queue_id"]] = await _last_stored_ms(page, topic, each)
            if page.missing:  # the next one may take as long to say that it is not there
                break
    return page.show(
        "messaging/topic.html", topic=topic, stats=stats, queues=queues, times=times, tab="queues"
    )


async def _last_stored_ms(page: Page, topic: str, queue: dict[str, int]) -> int | None:
    """When the newest message of a queue was stored; None for an empty one."""
    if not queue["depth"]:
        return None
    query: Asked = {"offset": queue["max_offset"] - 1, "max_messages": 1, "clamp": "true"}
    query["body"] = "base64"
    where = address("topics", topic, "queues", str(queue["queue_id"]), "messages", query=query)
    try:
        found = (await page.api.ask("GET", where)).json()["messages"]
    except Refused as error:  # it may have no messages meanwhile, or the reader may not see them
        if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            page.lacks(where, error)
        return None
    return int(found[0]["store_time_ms"]) if found else None


class GroupsOfTopic(NamedTuple):
    """The groups that read a topic, by name."""

    names: list[str]
    is_whole: bool
    """Whether there are no more than these, of those that the reader may see."""


async def groups_of(page: Page, topic: str) -> GroupsOfTopic:
    """The first ones, of those that the reader may see."""
    where = address("groups", query={"page_size": GROUPS_LOOKED_AT_MAX})
    try:
        found = (await page.api.ask("GET", where)).json()
    except Refused as error:
        page.lacks(where, error)
        return GroupsOfTopic([], is_whole=True)
    names = [
        group["name"]
        for group in found["groups"]
        if any(each["topic"] == topic for each in group["subscriptions"])
    ]
    is_whole = not found["next_page_token"] and len(names) <= GROUPS_SHOWN_MAX
    return GroupsOfTopic(names[:GROUPS_SHOWN_MAX], is_whole)


@family.page("/topics/{topic}/groups", live_s=LIVE_S)
async def groups_of_topic(page: Page) -> Outcome:
    """Who reads it, and how far behind."""
    topic = page.name("topic")
    await page.get("topics", topic)
    rows = []
    groups = await groups_of(page, topic)
    for group in groups.names:
        lag = await page.find("groups", group, "lag", topic=topic)
        if lag is not None:
            rows.append(lag)
        elif page.missing:  # the next one may take as long to say that it is not there
            break
    return page.show(
        "messaging/topic_groups.html",
        topic=topic,
        rows=rows,
        is_whole=groups.is_whole,
        tab="groups",
    )


@family.page("/topics/{topic}/settings")
async def settings_of_topic(page: Page) -> Outcome:
    """What is set of it, and its end."""
    return await _settings(page, None)


async def _settings(page: Page, problem: dict[str, Any] | None, status: int = 200) -> Outcome:
    topic = page.name("topic")
    settings = await page.get("topics", topic)
    stats = await page.find("topics", topic, "stats", range="5s")
    return page.show(
        "messaging/topic_settings.html",
        status=status,
        topic=topic,
        settings=settings,
        depth=None if stats is None else stats["depth"],
        fields=SETTINGS,
        values=field_texts(SETTINGS, settings, page.form if problem else {}),
        may_change=await page.may("UPDATE", topic=topic),
        may_delete=await page.may("DELETE", topic=topic),
        tab="settings",
        problem=problem,
    )


@family.act("/topics/{topic}/settings")
async def change(page: Page) -> Outcome:
    """Show what a change of the settings would do, then make it."""
    return await change_settings(page, ("topics", page.name("topic")), SETTINGS, _refused)


async def _refused(page: Page, problem: dict[str, Any]) -> Outcome:
    return await _settings(page, problem, 400)


@family.act("/topics/{topic}/delete")
async def delete_topic(page: Page) -> Outcome:
    """Delete it with all its messages, when its name was typed."""
    topic = page.name("topic")
    if page.form.get("typed", "") != topic:
        problem = {"detail": page.gettext("The name that you typed is another one.")}
        return await _settings(page, {**Refused(422, problem).problem}, 422)
    await page.act("DELETE", "topics", topic)
    return Moved("topics", page.gettext("The topic is deleted, and all its messages."))
