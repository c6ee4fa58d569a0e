"""Dead letters: which groups have some, and those of one group."""

from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from app.web.consuming.excerpts import with_excerpt
from app.web.consuming.groups import group_crumbs
from app.web.serving.api import Json, Refused
from app.web.serving.families import Family
from app.web.serving.page import PAGE_SIZE, Outcome, Page

family: Final = Family("dead-letters", label="Dead letters", path="dead-letters", key="d")

FILTERS: Final = ("topic", "reason", "filter")
_GROUPS_AT_ONCE: Final = 100
GROUPS_LOOKED_AT_MAX: Final = 1_000
"""In one look for groups that have dead letters."""


@family.page("/dead-letters")
async def list_groups(page: Page) -> Outcome:
    """Groups with dead letters, in the order of their names."""
    token: str | None = page.query("page_token")
    rows: list[Json] = []
    looked = 0
    first = token
    while len(rows) < PAGE_SIZE and looked < GROUPS_LOOKED_AT_MAX:
        found = await page.act(
            "GET", "groups", query={"page_token": token, "page_size": _GROUPS_AT_ONCE}
        )
        for group in found["groups"]:
            summary = await _summary(page, group["name"])
            if summary is not None and summary["messages"]:
                rows.append(summary)
        looked += len(found["groups"])
        token = found.get("next_page_token")
        if not token:
            break
    return page.show(
        "consuming/dead_letter_groups.html", rows=rows, looked=looked, next_token=token, token=first
    )


async def _summary(page: Page, group: str) -> Json | None:
    try:
        summary: Json = await page.act("GET", "groups", group, "dlq")
    except Refused as error:
        if error.status in {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}:
            return None
        raise
    return summary


@family.page("/dead-letters/{group}")
async def of_group(page: Page) -> Outcome:
    """Its dead letters, newest place last, by topic, reason and filter."""
    return await letters_page(page)


async def letters_page(page: Page, problem: Json | None = None) -> Outcome:
    """The same, with why something was not done."""
    group, cursor = page.name("group"), page.query("cursor")
    asked = {name: page.query(name) for name in FILTERS}
    summary = await page.get("groups", group, "dlq")
    letters: list[Json] = []
    found: Json = {"scanned": 0}
    try:
        found = await page.get(
            *("groups", group, "dlq", "messages"),
            **asked,
            cursor=cursor,
            body="base64",
            page_size=PAGE_SIZE,
        )
        letters = [with_excerpt(each) for each in found["messages"]]
    except Refused as error:
        if error.status != HTTPStatus.BAD_REQUEST:
            raise
        problem = problem or error.problem
    return page.show(
        "consuming/dead_letters.html",
        status=HTTPStatus.OK if problem is None else HTTPStatus.BAD_REQUEST,
        summary=summary,
        letters=letters,
        scanned=found["scanned"],
        next_cursor=found.get("next_cursor"),
        cursor=cursor,
        asked=asked,
        is_filtered=any(asked.values()),
        may_redrive=await page.may("UPDATE", group=group),
        problem=problem,
        **letter_crumbs(page, group),
    )


def letter_crumbs(page: Page, group: str, *more: tuple[str, str]) -> Json:
    """Where the pages of a group's dead letters are."""
    crumbs = [(page.gettext("Dead letters"), "dead-letters"), *more]
    return {**group_crumbs(page, group), "crumbs": crumbs}


def way_to(group: str) -> str:
    """The path of its dead letters."""
    return f"dead-letters/{quote(group, safe='')}"
