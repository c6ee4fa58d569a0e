"""Policies, and the question whether somebody may do something."""

from http import HTTPStatus
from typing import Final

from app.web.serving.api import Json, Refused
from app.web.serving.confirming import is_typed, not_typed
from app.web.serving.families import Family
from app.web.serving.page import PAGE_SIZE, Moved, Outcome, Page

family: Final = Family("policies", label="Policies", path="policies", key="y", section="Access")

ACTIONS: Final = ("PUB", "SUB", "CREATE", "UPDATE", "DELETE", "GET", "LIST", "ADMIN")
KINDS: Final = ("topic", "group", "producer", "cluster")


@family.page("/policies")
async def list_policies(page: Page) -> Outcome:
    """In the order of their names; with `principal` and `action`, whether it may."""
    return await _list(page)


async def _list(page: Page, problem: Json | None = None) -> Outcome:
    prefix, token = page.query("prefix"), page.query("page_token")
    found = await page.get("policies", prefix=prefix, page_token=token, page_size=PAGE_SIZE)
    asked = {name: page.query(name) for name in ("principal", "action", "kind", "name")}
    answer: Json | None = None
    if asked["principal"] and asked["action"]:
        named = (
            {asked["kind"]: asked["name"]} if asked["name"] and asked["kind"] != "cluster" else {}
        )
        try:
            answer = await page.get(
                "whoami", principal=asked["principal"], action=asked["action"], **named
            )
        except Refused as error:
            if error.status not in {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND}:
                raise
            problem = problem or error.problem
    return page.show(
        "access/policies.html",
        status=HTTPStatus.OK if problem is None else HTTPStatus.BAD_REQUEST,
        policies=found["policies"],
        next_token=found.get("next_page_token"),
        asked=asked,
        answer=answer,
        actions=ACTIONS,
        kinds=KINDS,
        token=token,
        problem=problem,
    )


@family.act("/policies")
async def make(page: Page) -> Outcome:
    """A new policy; one of that name is left as it is."""
    name = page.form.get("policy", "").strip()
    body = {
        "subject": page.form.get("subject", "").strip(),
        "effect": page.form.get("effect", "ALLOW"),
        "actions": page.choices.get("act", []),
        "resources": page.form.get("resources", "").split(),
    }
    if not name:
        return await _list(page, {"detail": page.gettext("The name is missing.")})
    try:
        made = await page.act("PUT", "policies", name, json=body, headers={"if-none-match": "*"})
    except Refused as error:
        if error.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            raise
        if error.status == HTTPStatus.PRECONDITION_FAILED:
            taken = page.gettext("There is a policy “%(name)s” already.") % {"name": name}
            return await _list(page, {"detail": taken})
        return await _list(page, error.problem)
    return Moved("policies", " ".join([page.gettext("The policy is made."), *made["warnings"]]))


@family.page("/policies/{name}")
async def one_policy(page: Page) -> Outcome:
    """What it says."""
    return await _shown(page)


async def _shown(page: Page, problem: Json | None = None) -> Outcome:
    return page.show(
        "access/policy.html",
        status=HTTPStatus.OK if problem is None else HTTPStatus.BAD_REQUEST,
        policy=await page.get("policies", page.name("name")),
        problem=problem,
        crumbs=[(page.gettext("Policies"), "policies")],
    )


@family.act("/policies/{name}/delete")
async def delete(page: Page) -> Outcome:
    """Let it count no more."""
    name = page.name("name")
    if not is_typed(page, name):
        return await _shown(page, not_typed(page, name))
    await page.act("DELETE", "policies", name)
    return Moved("policies", page.gettext("The policy is deleted."))
