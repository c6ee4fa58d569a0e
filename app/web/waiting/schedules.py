"""Schedules: messages that are sent again and again; when each is due, pausing, deleting."""

from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from app.web.serving.api import Json
from app.web.serving.confirming import is_typed, not_typed
from app.web.serving.families import Family
from app.web.serving.page import PAGE_SIZE, Moved, Outcome, Page

family: Final = Family("schedules", label="Schedules", path="schedules", key="u")


@family.page("/schedules")
async def list_schedules(page: Page) -> Outcome:
    """By name, and when each is due next."""
    token = page.query("page_token")
    found = await page.get("schedules", page_token=token, page_size=PAGE_SIZE)
    return page.show(
        "waiting/schedules.html",
        schedules=found["schedules"],
        next_token=found["next_page_token"],
        token=token,
    )


@family.page("/schedules/{name}")
async def one_schedule(page: Page) -> Outcome:
    """What it sends, where, and when."""
    return await _shown(page)


async def _shown(page: Page, problem: Json | None = None) -> Outcome:
    schedule = await page.get("schedules", page.name("name"))
    return page.show(
        "waiting/schedule.html",
        status=HTTPStatus.OK if problem is None else HTTPStatus.BAD_REQUEST,
        schedule=schedule,
        may_change=await page.may("PUB", topic=schedule["topic"]),
        problem=problem,
        crumbs=[(page.gettext("Schedules"), "schedules")],
    )


@family.act("/schedules/{name}/pause")
async def pause(page: Page) -> Outcome:
    """Send nothing until it is resumed."""
    return await _set_paused(page, True, page.gettext("The schedule is paused."))


@family.act("/schedules/{name}/resume")
async def resume(page: Page) -> Outcome:
    """Send again, from now on."""
    return await _set_paused(page, False, page.gettext("The schedule goes on."))


async def _set_paused(page: Page, is_paused: bool, done: str) -> Outcome:
    name = page.name("name")
    await page.act("PATCH", "schedules", name, json={"paused": is_paused})
    return Moved(f"schedules/{quote(name, safe='')}", done)


@family.act("/schedules/{name}/delete")
async def delete(page: Page) -> Outcome:
    """Forget it."""
    name = page.name("name")
    if not is_typed(page, name):
        return await _shown(page, not_typed(page, name))
    await page.act("DELETE", "schedules", name)
    return Moved("schedules", page.gettext("The schedule is deleted."))
