"""Signing in with an API key, signing out, preferences, and the JSON behind the pages."""

import re
from http import HTTPStatus
from typing import Final

from starlette.responses import Response

from app.web.rendering.languages import LANGUAGES
from app.web.serving.api import Refused
from app.web.serving.families import Family
from app.web.serving.page import Outcome, Page
from app.web.serving.preferences import KEPT_S, LANGUAGE_COOKIE, THEME_COOKIE, THEMES
from app.web.serving.sessions import COOKIE, COOKIE_UNDER_TLS

family: Final = Family("entrance", is_for_anybody=True)

_KEY_CHARS_MAX: Final = 512
_WAY_BACK: Final = re.compile(r"[A-Za-z0-9._~%:+-][A-Za-z0-9._~%:/?&=+,@-]*|")
"""Below the pages' root; what begins with a slash could be another host."""


@family.page("/sign-in")
async def sign_in_form(page: Page) -> Outcome:
    """Where a stranger comes to on a node that asks for a key; who is none goes back."""
    if page.session is not None and page.query("next"):
        return page.redirect(f"./{_way_back(page.query('next'))}")
    return _form(page, None)


@family.act("/sign-in")
async def sign_in(page: Page) -> Outcome:
    """Begin a session, when the API knows the key."""
    key = page.form.get("key", "").strip()
    if not key or len(key) > _KEY_CHARS_MAX or not key.isascii() or not key.isprintable():
        return _form(page, {"detail": page.gettext("Give an API key.")})
    try:
        shown = page.api.with_key(key.encode())
        principal = (await shown.ask("GET", "/v1/whoami")).json()["principal"]
    except Refused as error:
        return _form(page, error.problem, status=error.status)
    response = page.redirect(f"./{_way_back(page.form.get('next', ''))}")
    if principal is not None:
        page.sessions.end(page.session_name)
        _keep(page, response, page.sessions.begin(key.encode(), principal))
    return response


@family.act("/sign-out")
async def sign_out(page: Page) -> Outcome:
    """End the session of this browser."""
    page.sessions.end(page.session_name)
    response = page.redirect("./sign-in?why=out")
    if COOKIE_UNDER_TLS in page.request.cookies:
        response.delete_cookie(COOKIE_UNDER_TLS, secure=True, httponly=True, samesite="strict")
    response.delete_cookie(COOKIE, path=None, httponly=True, samesite="strict")  # type: ignore[arg-type]
    return response


@family.act("/preferences")
async def preferences(page: Page) -> Outcome:
    """Keep theme and language in cookies, and go back."""
    response = page.redirect(f"./{_way_back(page.form.get('next', ''))}")
    theme, language = page.form.get("theme", ""), page.form.get("language", "")
    if theme in THEMES:
        response.set_cookie(THEME_COOKIE, theme, KEPT_S, samesite="lax")
    if language in LANGUAGES:
        response.set_cookie(LANGUAGE_COOKIE, language, KEPT_S, samesite="lax")
    return response


@family.page("/api/v1/{path:path}")
async def behind(page: Page) -> Outcome:
    """The JSON behind a page, for a browser that is signed in.

    Only JSON: a stored message never comes from here as a script or a page.
    """
    query = page.request.url.query
    where = f"/v1/{page.path.removeprefix('/api/v1/')}" + (f"?{query}" if query else "")
    answer = await page.api.ask("GET", where)
    if answer.headers.get(b"content-type", b"").partition(b";")[0] != b"application/json":
        problem = {"detail": page.gettext("What stands there is no JSON.")}
        raise Refused(HTTPStatus.NOT_ACCEPTABLE, problem)
    return Response(answer.body, media_type="application/json")


def _form(page: Page, problem: dict[str, str] | None, *, status: int | None = None) -> Outcome:
    given = page.form.get("next", page.query("next"))
    values = {"problem": problem, "next": _way_back(given), "why": page.query("why")}
    if problem is not None and status is None:
        status = HTTPStatus.UNPROCESSABLE_ENTITY
    return page.show("entrance/sign_in.html", status=status or HTTPStatus.OK, **values)


def _way_back(given: str) -> str:
    return given if _WAY_BACK.fullmatch(given) and "//" not in given.partition("?")[0] else ""


def _keep(page: Page, response: Response, name: str) -> None:
    """Under TLS for this host alone. Else, as browsers take no such cookie without TLS, for the
    pages: without a path it is for what is beside the sign-in, whatever the prefix of a proxy is.
    """
    secure = page.is_encrypted
    response.set_cookie(
        COOKIE_UNDER_TLS if secure else COOKIE,
        name,
        path="/" if secure else None,
        httponly=True,
        samesite="strict",
        secure=secure,
    )
