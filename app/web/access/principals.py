"""Principals: who they are, what they may, and their keys. A key is shown once, when it is made."""

from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from app.web.serving.api import Document, Json, Refused
from app.web.serving.confirming import is_typed, not_typed
from app.web.serving.families import Family
from app.web.serving.page import PAGE_SIZE, Moved, Outcome, Page

family: Final = Family(
    "principals", label="Principals", path="principals", key="i", section="Access"
)


@family.page("/principals")
async def list_principals(page: Page) -> Outcome:
    """In the order of their names."""
    return await _list(page)


async def _list(page: Page, problem: Json | None = None) -> Outcome:
    prefix, token = page.query("prefix"), page.query("page_token")
    found = await page.get("principals", prefix=prefix, page_token=token, page_size=PAGE_SIZE)
    return page.show(
        "access/principals.html",
        status=HTTPStatus.OK if problem is None else HTTPStatus.BAD_REQUEST,
        principals=found["principals"],
        next_token=found.get("next_page_token"),
        roles=(await page.get("roles"))["roles"],
        prefix=prefix,
        token=token,
        problem=problem,
    )


@family.act("/principals")
async def make(page: Page) -> Outcome:
    """A new one; one of that name is left as it is."""
    name = page.form.get("name", "").strip()
    body = {
        "roles": page.choices.get("role", []),
        "resources": page.form.get("resources", "").split(),
        "namespace": page.form.get("namespace", "").strip(),
        "allowed_from": page.form.get("allowed_from", "").split(),
    }
    if not name:
        return await _list(page, {"detail": page.gettext("The name is missing.")})
    try:
        await page.act("PUT", "principals", name, json=body, headers={"if-none-match": "*"})
    except Refused as error:
        if error.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            raise
        if error.status == HTTPStatus.PRECONDITION_FAILED:
            taken = page.gettext("There is a principal “%(name)s” already.") % {"name": name}
            return await _list(page, {"detail": taken})
        return await _list(page, error.problem)
    return Moved(_way(name), page.gettext("The principal is made. Now make a key for it."))


def _way(name: str) -> str:
    return f"principals/{quote(name, safe='')}"


@family.page("/principals/{name}")
async def one_principal(page: Page) -> Outcome:
    """What it may, and its keys."""
    return await _shown(page)


async def _shown(page: Page, problem: Json | None = None, new_key: Json | None = None) -> Outcome:
    name = page.name("name")
    found = await page.get("principals", name)
    return page.show(
        "access/principal.html",
        status=HTTPStatus.OK if problem is None else HTTPStatus.BAD_REQUEST,
        principal=found,
        new_key=new_key,
        seen=_key_ids(found),
        problem=problem,
        crumbs=[(page.gettext("Principals"), "principals")],
    )


@family.act("/principals/{name}/keys")
async def make_key(page: Page) -> Outcome:
    """A key, shown in this answer and never again. A form that is sent twice makes one."""
    expires, seen = page.form.get("expires", "").strip(), page.form.get("seen")
    asked: Json = {"expires": expires or None}
    if seen is not None:
        asked["known_keys"] = seen.split()
    try:
        key = await page.act("POST", "principals", page.name("name"), "keys", json=asked)
    except Refused as error:
        if error.status == HTTPStatus.PRECONDITION_FAILED:
            return await _shown(page, _made_already(page))
        if error.status != HTTPStatus.BAD_REQUEST:
            raise
        return await _shown(page, error.problem)
    return await _shown(page, new_key=key)


def _key_ids(principal: Document) -> str:
    """Of its keys, as the form brings them back: another key makes another text."""
    return " ".join(sorted(each["id"] for each in principal["keys"]))


def _made_already(page: Page) -> Json:
    return {
        "detail": page.gettext("The keys have changed since this form was shown; none was made."),
        "hint": page.gettext(
            "If the form was sent twice, the first answer had the key. Revoke that key if nobody"
            " copied it, and make another."
        ),
    }


@family.act("/principals/{name}/keys/{key}/revoke")
async def revoke_key(page: Page) -> Outcome:
    """Let a key work no more."""
    name, key = page.name("name"), page.name("key")
    await page.act("DELETE", "principals", name, "keys", key)
    return Moved(_way(name), page.gettext("The key is revoked: it works no more."))


@family.act("/principals/{name}/delete")
async def delete(page: Page) -> Outcome:
    """With all of its keys."""
    name = page.name("name")
    if not is_typed(page, name):
        return await _shown(page, not_typed(page, name))
    await page.act("DELETE", "principals", name)
    return Moved("principals", page.gettext("The principal is deleted, and its keys with it."))
