"""Resetting the offsets of a group: where to, the table of what it would do, and the confirmation.

The table is of the API's dry run. The form that carries the reset out has the places that were
shown, so that one which is sent twice, or after the group has been reset by another, does nothing.
"""

import re
from hashlib import sha256
from http import HTTPStatus
from typing import Final

from app.web.consuming.groups import group_crumbs
from app.web.serving.api import Json, Refused
from app.web.serving.confirming import is_typed, not_typed
from app.web.serving.families import Family
from app.web.serving.fields import moment_ms_of
from app.web.serving.page import Moved, Outcome, Page

family: Final = Family("groups")

ROWS_SHOWN_MAX: Final = 512


@family.page("/groups/{group}/offsets")
async def offsets(page: Page) -> Outcome:
    """The form, and with `to` in the address the table."""
    asked = {name: page.query(name) for name in ("to", "topic", "at", "value")}
    return await _shown(page, asked, None)


async def _shown(page: Page, asked: Json, problem: Json | None) -> Outcome:
    group = page.name("group")
    document = await page.get("groups", group)
    changes: list[Json] | None = None
    missing: list[str] = []
    if asked["to"]:
        try:
            answer = await _ask(page, asked, is_dry=True)
        except Refused as error:
            problem = problem or error.problem
        else:
            changes, missing = (
                [_with_effect(each) for each in answer["offsets"]],
                answer["missing_topics"],
            )
    return page.show(
        "consuming/group_offsets.html",
        status=HTTPStatus.OK if problem is None else HTTPStatus.BAD_REQUEST,
        asked=asked,
        topics=[each["topic"] for each in document["subscriptions"]],
        changes=changes,
        missing=missing,
        again=sum(each["again"] for each in changes or ()),
        skipped=sum(each["skipped"] for each in changes or ()),
        mark=mark_of(changes or []),
        rows_max=ROWS_SHOWN_MAX,
        may_reset=await page.may("UPDATE", group=group),
        problem=problem,
        **group_crumbs(page, group),
    )


def _with_effect(change: Json) -> Json:
    """A row with how many messages come again, or are passed over."""
    before, after = change["before"], change["after"]
    start = change["min_offset"] if before is None else before
    return {**change, "again": max(start - after, 0), "skipped": max(after - start, 0)}


def mark_of(changes: list[Json]) -> str:
    """Stands for where the queues are to be: the same table has the same one, and a short one, as
    a form has to bring it back."""
    places = [f"{each['topic']}/{each['queue_id']}={each['after']}" for each in changes]
    return sha256(" ".join(places).encode()).hexdigest()


async def _ask(page: Page, asked: Json, *, is_dry: bool) -> Json:
    names = ["groups", page.name("group"), "offsets:reset"]
    if asked["topic"]:
        names[2:] = ["offsets", f"{asked['topic']}:reset"]
    query = {"dry_run": "true"} if is_dry else None
    answer: Json = await page.act("POST", *names, query=query, json=_body(page, asked))
    return answer


def _body(page: Page, asked: Json) -> Json:
    """The request's body. Raises `Refused` for what is no time or number."""
    target = asked["to"]
    if target == "timestamp":
        return {"to": target, "timestamp_ms": _moment(page, asked["at"])}
    if target in {"offset", "shift"}:
        if not re.fullmatch(r"-?[0-9]{1,18}", asked["value"]):
            raise _bad(page.gettext("This is no whole number: “%(text)s”."), asked["value"])
        return {"to": target, target: int(asked["value"])}
    return {"to": target}


def _moment(page: Page, text: str) -> int:
    moment_ms = moment_ms_of(text)
    if moment_ms is None:
        raise _bad(page.gettext("This is no time: “%(text)s”."), text)
    return moment_ms


def _bad(sentence: str, text: str) -> Refused:
    return Refused(HTTPStatus.BAD_REQUEST, {"detail": sentence % {"text": text[:100]}})


@family.act("/groups/{group}/offsets")
async def reset(page: Page) -> Outcome:
    """Carry out what the table showed."""
    group = page.name("group")
    asked = {name: page.form.get(name, "") for name in ("to", "topic", "at", "value")}
    if not is_typed(page, group):
        return await _shown(page, asked, not_typed(page, group))
    planned = await _ask(page, asked, is_dry=True)
    if _is_moving(asked) and mark_of(
        [_with_effect(each) for each in planned["offsets"]]
    ) != page.form.get("mark"):
        problem = {
            "detail": page.gettext(
                "The group has moved since the table was made; nothing was done."
            ),
            "hint": page.gettext("Look at the new table, and confirm it."),
        }
        return await _shown(page, asked, problem)
    done = await _ask(page, asked, is_dry=False)
    sentence = page.ngettext(
        "%(n)s queue was reset.", "%(n)s queues were reset.", len(done["offsets"])
    )
    return Moved(f"groups/{group}", sentence % {"n": len(done["offsets"])})


def _is_moving(asked: Json) -> bool:
    """Whether the same request, sent twice, would move the group twice."""
    return bool(asked["to"] == "shift")
