"""One replica of a shard: taking its node out, and having it begin anew. Each is previewed, and
asks for the id of the node."""

from http import HTTPStatus
from typing import Final

from app.web.operating.shards import DRY, Tried, shard_of, tried
from app.web.serving.api import Document, Json, Refused
from app.web.serving.confirming import is_typed, not_typed
from app.web.serving.families import Family
from app.web.serving.page import Moved, Outcome, Page

family: Final = Family("nodes")


@family.page("/nodes/shards/{shard}/replicas/{node_id}")
async def plan(page: Page) -> Outcome:
    """What both would be."""
    return await _plan(page)


async def _plan(page: Page, problem: Json | None = None) -> Outcome:
    shard, node_id = await shard_of(page), page.name("node_id")
    replica = next((each for each in shard["replicas"] if each["node_id"] == node_id), None)
    if replica is None:
        detail = page.gettext("The node “%(name)s” has no replica of this shard.")
        raise Refused(HTTPStatus.NOT_FOUND, {"detail": detail % {"name": node_id}})
    may_change = await page.may("ADMIN")
    return page.show(
        "operating/replica.html",
        status=HTTPStatus.OK if problem is None else HTTPStatus.CONFLICT,
        shard=shard,
        replica=replica,
        may_change=may_change,
        removal=await _preview(page, "DELETE") if may_change else None,
        reset=await _preview(page, "POST", "reset") if may_change else None,
        keeps_log=bool(page.form.get("keep_log")),
        problem=problem,
        crumbs=[(page.gettext("Nodes"), "nodes")],
    )


def _way(page: Page) -> tuple[str, ...]:
    return "shards", page.name("shard"), "replicas", page.name("node_id")


async def _preview(page: Page, method: str, *more: str) -> Tried:
    body: Document = {"json": {}} if more else {}
    return await tried(page.act(method, *_way(page), *more, query=DRY, **body))


@family.act("/nodes/shards/{shard}/replicas/{node_id}/remove")
async def remove(page: Page) -> Outcome:
    """Take the node out for good."""
    told = page.gettext("The node %(node)s has no replica of the shard “%(name)s” any more.")
    return await _done(page, "DELETE", _way(page), told, {})


@family.act("/nodes/shards/{shard}/replicas/{node_id}/reset")
async def reset(page: Page) -> Outcome:
    """Throw away what it has, and copy it from the leader."""
    told = page.gettext("The replica of %(node)s begins anew; this page shows when it is in sync.")
    body = {"json": {"keep_log": bool(page.form.get("keep_log"))}}
    return await _done(page, "POST", (*_way(page), "reset"), told, body)


async def _done(
    page: Page, method: str, way: tuple[str, ...], told: str, more: Document
) -> Outcome:
    name, node = page.name("shard"), page.name("node_id")
    if not is_typed(page, node):
        return await _plan(page, not_typed(page, node))
    _, problem = await tried(page.act(method, *way, **more))
    if problem is not None:
        return await _plan(page, problem)
    return Moved("nodes", told % {"name": name, "node": node})
