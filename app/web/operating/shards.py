"""One shard of several replicas: who leads it, and handing it over to another node."""

import asyncio
from collections.abc import Awaitable
from http import HTTPStatus
from typing import Final, NamedTuple

from app.web.serving.api import Document, Json, Refused
from app.web.serving.families import Family
from app.web.serving.page import Moved, Outcome, Page

family: Final = Family("nodes")

HAND_OVER_SECONDS: Final = 6.0
"""How long the outcome is waited for: the leader gives up after two, and leads again a little
later."""
LOOK_SECONDS: Final = 0.1
"""Between two looks."""
DRY: Final = {"dry_run": "true"}
"""The query of a preview."""
_SHOWN_AGAIN: Final = frozenset(
    {HTTPStatus.CONFLICT, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE}
)


class Tried(NamedTuple):
    """What an operation says, or why it is refused."""

    found: Document | None
    problem: Json | None


async def tried(acting: Awaitable[Document]) -> Tried:
    """Its outcome, where a refusal is to be told on the page that has asked. Raises any other
    `Refused`."""
    try:
        return Tried(await acting, None)
    except Refused as error:
        if error.status not in _SHOWN_AGAIN:
            raise
        return Tried(None, error.problem)


@family.page("/nodes/shards/{shard}/hand-over")
async def plan(page: Page) -> Outcome:
    """Whom it may be handed over to."""
    return await _plan(page)


async def _plan(page: Page, problem: Json | None = None) -> Outcome:
    shard = await shard_of(page)
    return page.show(
        "operating/hand_over.html",
        status=HTTPStatus.OK if problem is None else HTTPStatus.CONFLICT,
        shard=shard,
        others=[each for each in shard["replicas"] if each["node_id"] != shard["leader"]],
        chosen=page.form.get("node", ""),
        may_hand_over=await page.may("ADMIN"),
        problem=problem,
        crumbs=[(page.gettext("Nodes"), "nodes")],
    )


async def shard_of(page: Page) -> Document:
    """The shard of the path, as `GET /v1/cluster` has it."""
    name = page.name("shard")
    for each in (await page.get("cluster"))["shards"]:
        if each["name"] == name:
            return each
    detail = page.gettext("There is no shard “%(name)s”.") % {"name": name}
    raise Refused(HTTPStatus.NOT_FOUND, {"detail": detail})


@family.act("/nodes/shards/{shard}/hand-over")
async def hand_over(page: Page) -> Outcome:
    """Begin it, and tell what came of it."""
    name, node = page.name("shard"), page.form.get("node", "").strip()
    asked = page.act("POST", "shards", name, "hand-over", json={"node": node or None})
    begun, problem = await tried(asked)
    if begun is None:
        return await _plan(page, problem)
    told = {"name": name, "node": begun["to"]}
    if not begun["changed"]:
        text = page.gettext("The node %(node)s leads the shard “%(name)s” already.")
        return Moved("nodes", text % told)
    leader = await _leader_behind(page, begun["epoch"])
    if leader == begun["to"]:
        text = page.gettext("The node %(node)s leads the shard “%(name)s” now.")
        return Moved("nodes", text % told)
    if leader is not None:
        text = page.gettext(
            "The node %(node)s did not take the shard “%(name)s” over: %(leader)s leads it."
        )
        return Moved("nodes", text % {**told, "leader": leader})
    text = page.gettext(
        "The shard “%(name)s” is being handed over to %(node)s; this page shows when it leads."
    )
    return Moved("nodes", text % told)


async def _leader_behind(page: Page, epoch: int) -> str | None:
    """Who leads in an epoch behind this one; None: nobody yet."""
    try:
        async with asyncio.timeout(HAND_OVER_SECONDS):
            while True:
                shard = await shard_of(page)
                if shard["epoch"] > epoch and shard["leader"] and shard["answers"]:
                    return str(shard["leader"])
                await asyncio.sleep(LOOK_SECONDS)
    except (TimeoutError, Refused):
        return None
