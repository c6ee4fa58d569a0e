"""Who reads for a group: members and their queues, what happened in rebalances, its clients."""

from collections.abc import Sequence
from typing import Final

from app.web.consuming.groups import group_crumbs
from app.web.serving.api import Json
from app.web.serving.families import LIVE_S, Family
from app.web.serving.page import PAGE_SIZE, Outcome, Page

family: Final = Family("groups")


@family.page("/groups/{group}/members", live_s=LIVE_S)
async def members(page: Page) -> Outcome:
    """Each member with its queues, and what they do not agree on."""
    group = page.name("group")
    found = await page.get("groups", group, "members")
    rows = [
        {
            **member,
            "assigned": in_runs(member["assigned"]),
            "pending": in_runs(member["pending"]),
            "revoked": in_runs(member["revoked"]),
            "count": len(member["assigned"]),
        }
        for member in found["members"]
    ]
    return page.show(
        "consuming/group_members.html", found=found, rows=rows, **group_crumbs(page, group)
    )


def in_runs(queues: Sequence[Json]) -> list[tuple[str, str]]:
    """Topic, and its queues with neighbours as one run."""
    by_topic: dict[str, list[int]] = {}
    for queue in queues:
        by_topic.setdefault(queue["topic"], []).append(queue["queue_id"])
    return [(topic, _runs(sorted(ids))) for topic, ids in sorted(by_topic.items())]


def _runs(ids: Sequence[int]) -> str:
    runs: list[tuple[int, int]] = []
    for number in ids:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    return ", ".join(str(a) if a == b else f"{a}\N{EN DASH}{b}" for a, b in runs)


@family.page("/groups/{group}/rebalances", live_s=LIVE_S)
async def rebalances(page: Page) -> Outcome:
    """The newest ones, each with what happened in it."""
    group = page.name("group")
    found = await page.get("groups", group, "rebalances")
    return page.show(
        "consuming/group_rebalances.html",
        rebalances=found["rebalances"],
        reasons=_reasons(page),
        **group_crumbs(page, group),
    )


def _reasons(page: Page) -> dict[str, str]:
    """What happened, as a sentence about the clients."""
    gettext = page.gettext
    return {
        "member_joined": gettext("joined the group"),
        "member_restarted": gettext("started again"),
        "member_left": gettext("left the group"),
        "member_silent": gettext("silent for too long: the queues went to others"),
        "subscription_changed": gettext("reads other topics, or with other filters"),
        "strategy_changed": gettext("shares queues out in another way"),
        "queues_changed": gettext("A topic has another number of queues"),
        "offsets_reset": gettext("Offsets were reset"),
        "leased_instead": gettext("Messages are leased now instead of queues assigned"),
    }


@family.page("/groups/{group}/clients", live_s=LIVE_S)
async def clients(page: Page) -> Outcome:
    """Who asked lately in the name of the group."""
    group, token = page.name("group"), page.query("page_token")
    found = await page.get("groups", group, "clients", page_token=token, page_size=PAGE_SIZE)
    return page.show(
        "consuming/group_clients.html",
        clients=found["clients"],
        next_token=found["next_page_token"],
        token=token,
        **group_crumbs(page, group),
    )
