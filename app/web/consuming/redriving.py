"""Redriving and purging dead letters: the plan, the act, and what became of each letter."""

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final

from app.web.consuming.dead_letters import FILTERS, letter_crumbs, letters_page, way_to
from app.web.serving.api import Asked, Json, Refused, address
from app.web.serving.confirming import is_typed, not_typed
from app.web.serving.families import Family
from app.web.serving.page import Moved, Outcome, Page

family: Final = Family("dead-letters")

CHOSEN_MAX: Final = 50
"""Letters that are chosen one by one: those of a page."""
_LIVE_S: Final = 1.0


def _choice(texts: Mapping[str, str], offsets: Sequence[str]) -> Json | None:
    """Which letters: those that are chosen, or all that match; None: none is chosen."""
    chosen = chosen_letters(offsets)
    if chosen:
        return named(chosen)
    if texts.get("which") != "all":
        return None
    asked = {name: texts[name] for name in FILTERS if texts.get(name)}
    return asked or {"all": True}


def chosen_letters(texts: Sequence[str]) -> list[str]:
    """Offsets; on a cluster, where each shard counts its own, with the message's id behind."""
    return [each for each in texts[:CHOSEN_MAX] if re.fullmatch(r"[0-9]{1,18}(:\w{1,64})?", each)]


def named(letters: Sequence[str]) -> Json:
    """The letters, for a request."""
    parts = [each.partition(":") for each in letters]
    ids = [each[2] for each in parts if each[2]]
    offsets = [int(each[0]) for each in parts]
    return {"offsets": offsets, "message_ids": ids} if ids else {"offsets": offsets}


def _shown_offset(letter: str) -> int:
    return int(letter.partition(":")[0])


@family.page("/dead-letters/{group}/plan")
async def plan(page: Page) -> Outcome:
    """What a redrive or a purge of the chosen letters would do."""
    query = page.request.query_params
    texts = {name: page.query(name) for name in ("which", "act", *FILTERS)}
    return await _planned(page, texts, query.getlist("offset"), None)


async def _planned(
    page: Page, texts: Mapping[str, str], offsets: Sequence[str], problem: Json | None
) -> Outcome:
    group, choice = page.name("group"), _choice(texts, offsets)
    if choice is None:
        return await letters_page(page, _none_chosen(page))
    is_purge = texts.get("act") == "purge"
    base = ("groups", group, "dlq", "messages:purge" if is_purge else "messages:redrive")
    dry = {"dry_run": "true"}
    planned = await page.act("POST", *base, query=dry, json=choice)
    each: list[Json] = []
    if not is_purge:
        for letter in chosen_letters(offsets):
            one = await page.act("POST", *base, query=dry, json=named([letter]))
            each.append({"offset": _shown_offset(letter), **one})
    return page.show(
        "consuming/dead_letter_plan.html",
        status=HTTPStatus.OK if problem is None else HTTPStatus.BAD_REQUEST,
        planned=planned,
        count=planned["removed"] if is_purge else planned["matched"],
        each=each,
        texts=texts,
        offsets=chosen_letters(offsets),
        is_purge=is_purge,
        problem=problem,
        **letter_crumbs(page, group, (group, way_to(group))),
    )


def _none_chosen(page: Page) -> Json:
    return {
        "detail": page.gettext("No dead letter is chosen; nothing was done."),
        "hint": page.gettext("Choose some, or take all that match."),
    }


@family.act("/dead-letters/{group}/redrive")
async def redrive(page: Page) -> Outcome:
    """Begin it; the page of the operation says what becomes of the letters."""
    group, offsets = page.name("group"), page.choices.get("offset", [])
    choice = _choice(page.form, offsets)
    if choice is None:
        return await letters_page(page, _none_chosen(page))
    if not is_typed(page, group):
        return await _planned(page, page.form, offsets, not_typed(page, group))
    rate, to_topic = page.form.get("rate", "").strip(), page.form.get("to_topic", "").strip()
    try:
        more = {"rate_per_s": float(rate) if rate else None, "to_topic": to_topic or None}
        names = ("groups", group, "dlq", "messages:redrive")
        seen = chosen_letters(offsets) or await _first_of(
            page, group, choice
        )  # while they are here
        begun = await page.act("POST", *names, json={**choice, **more})
    except ValueError:
        problem = {
            "detail": page.gettext("This is no number of letters a second: “%(text)s”.")
            % {"text": rate}
        }
        return await _planned(page, page.form, offsets, problem)
    except Refused as error:
        return await _planned(page, page.form, offsets, error.problem)
    chosen = ",".join(seen)
    query = f"?offsets={chosen}" if chosen else ""
    return Moved(f"{way_to(group)}/operations/{begun['operation_id']}{query}")


async def _first_of(page: Page, group: str, choice: Json) -> list[str]:
    """The first letters of a choice, whose outcomes are shown one by one."""
    query: Asked = {name: choice[name] for name in FILTERS if name in choice}
    query["page_size"] = CHOSEN_MAX
    where = address("groups", group, "dlq", "messages", query=query)
    found = (await page.api.ask("GET", where)).json()["messages"]
    return [
        f"{each['offset']}:{each['message_id']}" if "shard" in each else str(each["offset"])
        for each in found
    ]


@family.act("/dead-letters/{group}/purge")
async def purge(page: Page) -> Outcome:
    """Delete them for good."""
    group, offsets = page.name("group"), page.choices.get("offset", [])
    choice = _choice(page.form, offsets)
    if choice is None:
        return await letters_page(page, _none_chosen(page))
    if not is_typed(page, group):
        return await _planned(page, {**page.form, "act": "purge"}, offsets, not_typed(page, group))
    done = await page.act("POST", "groups", group, "dlq", "messages:purge", json=choice)
    sentence = page.ngettext(
        "%(n)s dead letter was deleted.", "%(n)s dead letters were deleted.", done["removed"]
    )
    return Moved(way_to(group), sentence % {"n": done["removed"]})


@family.page("/dead-letters/{group}/operations/{operation}", live_s=_LIVE_S)
async def operation(page: Page) -> Outcome:
    """How far a redrive is, and what became of each letter that was chosen."""
    group = page.name("group")
    found = await page.get("operations", page.name("operation"))
    chosen = chosen_letters(page.query("offsets").split(","))
    names = ("groups", group, "dlq", "messages:redrive")
    outcomes: list[Json] = []
    for letter in chosen:
        dry = {"dry_run": "true"}
        left = await page.act("POST", *names, query=dry, json=named([letter]))
        is_here, offset = left["matched"] > 0, _shown_offset(letter)
        outcomes.append({"offset": offset, "is_here": is_here, "skipped": left["skipped"]})
    return page.show(
        "consuming/dead_letter_operation.html",
        operation=found,
        outcomes=outcomes,
        **letter_crumbs(page, group, (group, way_to(group))),
    )


@family.act("/dead-letters/{group}/operations/{operation}/cancel")
async def cancel(page: Page) -> Outcome:
    """Go no further; what is done stays done."""
    name = page.name("operation")
    await page.act("POST", "operations", f"{name}:cancel")
    return Moved(
        f"{way_to(page.name('group'))}/operations/{name}", page.gettext("It goes no further.")
    )
