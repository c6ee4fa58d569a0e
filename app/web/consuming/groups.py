"""The list of groups, and one group: how far it is in each queue, its settings, its end."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from app.web.serving.api import Asked, Json, Refused, address
from app.web.serving.confirming import is_typed, not_typed
from app.web.serving.families import LIVE_S, Family
from app.web.serving.page import Moved, Outcome, Page
from app.web.serving.settings_form import Setting, change_settings, field_texts

family: Final = Family("groups", label="Groups", path="groups", key="g")

GROUPS_PER_PAGE: Final = 25
SETTINGS: Final = (
    Setting("max_attempts"),
    Setting("on_exhausted", ("dead_letter", "skip", "park")),
    Setting("invisible"),
    Setting("order", ("concurrent", "fifo")),
    Setting("mode", ("clustering", "broadcast")),
    Setting("subscription", ("one", "free")),
    Setting("start"),
    Setting("max_in_flight"),
    Setting("max_in_flight_per_member"),
    Setting("max_in_flight_bytes"),
    Setting("max_span"),
)
"""What the form changes; the policy of retries is changed over the API."""
QUEUES_SHOWN_MAX: Final = 128
"""Of each topic. A topic may have 1,024 queues; the JSON behind the page lists them all."""


_PLACE: Final = ("queue_id", "queue_offset")


@family.page("/groups", live_s=LIVE_S)
async def list_groups(page: Page) -> Outcome:
    """Those whose names begin with `prefix`, from `page_token` on, with what waits for each."""
    prefix, token = page.query("prefix"), page.query("page_token")
    listed: Asked = {"prefix": prefix, "page_token": token, "page_size": GROUPS_PER_PAGE}
    found = await page.part("groups", **listed, show="lag")
    lag: dict[str, Json | None] = {}
    if found is None:
        found = await page.get("groups", **listed)
    elif await _is_of_one_shard(page):
        lag = dict.fromkeys((each["name"] for each in found["groups"]), None)
        lag |= {each["group"]: each for each in found["lag"]}
    else:  # the list has figures of this node's shard alone
        lag = await _lags(page, [each["name"] for each in found["groups"]])
    rows = [(each, lag.get(each["name"]), each["name"] in lag) for each in found["groups"]]
    return page.show(
        "consuming/groups.html",
        rows=rows,
        next_token=found.get("next_page_token"),
        prefix=prefix,
        token=token,
    )


async def _is_of_one_shard(page: Page) -> bool:
    """Whether there is no other node that has a part of the queues."""
    nodes = await page.find("nodes")
    return nodes is not None and len({each["shard"] for each in nodes["nodes"]}) <= 1


async def _lags(page: Page, groups: Sequence[str]) -> dict[str, Json | None]:
    """What waits for each group; None when its reader may not know. After one that cannot be
    answered now no more are asked: each may take as long as that one did."""
    found: dict[str, Json | None] = {}
    for group in groups:
        lag = await lag_of(page, group)
        if page.is_missing("groups", group, "lag"):
            break
        found[group] = lag
    return found


async def lag_of(page: Page, group: str) -> Json | None:
    """What waits for a group; None when its reader may not know."""
    try:
        lag: Json = await page.act("GET", "groups", group, "lag")
    except Refused as error:
        if error.status not in {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}:
            page.lacks(address("groups", group, "lag"), error)
        return None
    return lag


@family.page("/groups/{group}", live_s=LIVE_S)
async def one_group(page: Page) -> Outcome:
    """Its figures, a chart, and how far it is in each queue."""
    group = page.name("group")
    document = await page.get("groups", group)
    lag = await page.part("groups", group, "lag")
    stats = await page.find("groups", group, "stats", range="15m", step="15s")
    parked = await page.find("groups", group, "parked")
    return page.show(
        "consuming/group.html",
        document=document,
        lag=lag,
        series=None if stats is None else stats.get("series"),
        rates=None if stats is None else stats["rates"]["1m"],
        parked=[] if parked is None else parked["parked"],
        may_release=await page.may("UPDATE", group=group),
        kinds={each["topic"]: each["consumption"] for each in lag["subscriptions"]} if lag else {},
        queues_max=QUEUES_SHOWN_MAX,
        **group_crumbs(page, group),
    )


def group_crumbs(page: Page, group: str) -> Json:
    """Where the pages of a group are."""
    return {"crumbs": [(page.gettext("Groups"), "groups")], "group": group}


@family.page("/groups/{group}/settings")
async def settings(page: Page) -> Outcome:
    """What was set, pausing, and deleting."""
    return await _settings(page)


async def _settings(page: Page, problem: Json | None = None) -> Outcome:
    group = page.name("group")
    document = await page.get("groups", group)
    return page.show(
        "consuming/group_settings.html",
        status=HTTPStatus.OK if problem is None else HTTPStatus.BAD_REQUEST,
        document=document,
        settings=SETTINGS,
        values=field_texts(SETTINGS, document, page.form if problem else {}),
        lag=await lag_of(page, group),
        may_change=await page.may("UPDATE", group=group),
        may_delete=await page.may("DELETE", group=group),
        problem=problem,
        **group_crumbs(page, group),
    )


@family.act("/groups/{group}/settings")
async def change(page: Page) -> Outcome:
    """Show what a change of the settings would do, then make it."""
    return await change_settings(page, ("groups", page.name("group")), SETTINGS, _settings)


@family.act("/groups/{group}/parked")
async def release(page: Page) -> Outcome:
    """Let a key go on that a parked message holds up."""
    group, given = page.name("group"), page.form
    place = {name: int(given[name]) if given.get(name, "").isdecimal() else -1 for name in _PLACE}
    asked = {"topic": given.get("topic", ""), "action": given.get("action", ""), **place}
    await page.act("POST", "groups", group, "parked:release", json=asked)
    return Moved(f"groups/{_quoted(group)}", page.gettext("The message is released."))


@family.act("/groups/{group}/pause")
async def pause(page: Page) -> Outcome:
    """Give nothing more to it."""
    group = page.name("group")
    await page.act("POST", "groups", f"{group}:pause")
    return Moved(f"groups/{_quoted(group)}/settings", page.gettext("The group is paused."))


@family.act("/groups/{group}/resume")
async def resume(page: Page) -> Outcome:
    """Go on giving to it."""
    group = page.name("group")
    await page.act("POST", "groups", f"{group}:resume")
    return Moved(f"groups/{_quoted(group)}/settings", page.gettext("The group goes on."))


@family.act("/groups/{group}/delete")
async def delete(page: Page) -> Outcome:
    """Forget it, with its places, its retries and its dead letters."""
    group = page.name("group")
    if not is_typed(page, group):
        return await _settings(page, not_typed(page, group))
    await page.act("DELETE", "groups", group)
    return Moved("groups", page.gettext("The group is deleted."))


def _quoted(name: str) -> str:
    return quote(name, safe="")
