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


@family.page("/dead-letters")
async def list_groups(page: Page) -> Outcome:
    """Groups with dead letters, in the order of their names."""
    prefix, token = page.query("prefix"), page.query("page_token")
    found = await page.get(
        "groups", prefix=prefix, page_token=token, page_size=PAGE_SIZE, show="dead_letters"
    )
    return page.show(
        "consuming/dead_letter_groups.html",
        rows=found["dead_letters"],
        next_token=found["next_page_token"],
        prefix=prefix,
        token=token,
    )


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
