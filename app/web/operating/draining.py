"""One shard that is emptied before it is taken away: what is left in it, each step, and the way
back. Each asks for the shard's name."""

from http import HTTPStatus
from typing import Final

from app.web.operating.shards import DRY, shard_of, tried
from app.web.serving.api import Document, Json
from app.web.serving.confirming import is_typed, not_typed
from app.web.serving.families import Family
from app.web.serving.page import Moved, Outcome, Page

family: Final = Family("nodes")


@family.page("/nodes/shards/{shard}/drain")
async def plan(page: Page) -> Outcome:
    """What is in it, and what may be done."""
    return await _plan(page)


async def _plan(page: Page, problem: Json | None = None) -> Outcome:
    shard = await shard_of(page)
    may_drain = await page.may("ADMIN")
    found: Document | None = None
    if may_drain:
        found, refusal = await tried(page.act("POST", *_way(page), query=DRY, json={}))
        problem = problem or refusal
    return page.show(
        "operating/drain.html",
        status=HTTPStatus.OK if problem is None else HTTPStatus.CONFLICT,
        shard=shard,
        found=found,
        may_drain=may_drain,
        problem=problem,
        crumbs=[(page.gettext("Nodes"), "nodes")],
    )


def _way(page: Page) -> tuple[str, str, str]:
    return "shards", page.name("shard"), "drain"


@family.act("/nodes/shards/{shard}/drain")
async def drain(page: Page) -> Outcome:
    """Messages without a key go to other shards."""
    told = page.gettext("The shard “%(name)s” drains: messages without a key go to other shards.")
    return await _done(page, "POST", told, {"json": {}})


@family.act("/nodes/shards/{shard}/drain/keys")
async def move_keys(page: Page) -> Outcome:
    """Those of keys, too."""
    told = page.gettext("The keys of the shard “%(name)s” have moved: it takes nothing new.")
    return await _done(page, "POST", told, {"json": {"keys": True}})


@family.act("/nodes/shards/{shard}/drain/undo")
async def undo(page: Page) -> Outcome:
    """All is as before."""
    return await _done(
        page, "DELETE", page.gettext("The shard “%(name)s” takes messages again."), {}
    )


async def _done(page: Page, method: str, told: str, more: Document) -> Outcome:
    name = page.name("shard")
    if not is_typed(page, name):
        return await _plan(page, not_typed(page, name))
    _, problem = await tried(page.act(method, *_way(page), **more))
    if problem is not None:
        return await _plan(page, problem)
    return Moved("nodes", told % {"name": name})
