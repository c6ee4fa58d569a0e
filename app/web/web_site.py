"""The application at `/ui`: routes of all families, and what holds for every page.

- Who reads is known by the session of the browser, or by the credentials of the request; a page
  that the API answers with 401 leads to the sign-in.
- A request that changes something comes from a page of this node (`same_origin`).
- What the API refuses is a page with what happened and what to do.
"""

import asyncio
import logging
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from gettext import NullTranslations
from html import escape
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qs, quote, unquote, urlencode

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from app.domain.clock import Clock
from app.domain.limits import (
    UI_FORM_BYTES_MAX,
    UI_FORM_FIELDS_MAX,
    UI_FORM_OF_ANYBODY_BYTES_MAX,
)
from app.runtime.version import program_version
from app.web.rendering.assets import KEPT_FOR_EVER, Assets, packaged_assets
from app.web.rendering.languages import language_of, packaged_translations
from app.web.rendering.templates import Templates, packaged_templates
from app.web.serving.api import Api, AsgiApp, Refused
from app.web.serving.families import Family, View
from app.web.serving.headers import SecurityHeaders
from app.web.serving.live import MEDIA_TYPE, LiveStreams
from app.web.serving.namespaces import NAMESPACE, PATH, InNamespace
from app.web.serving.page import Moved, Page, Shown, session_name_of
from app.web.serving.preferences import LANGUAGE_COOKIE, theme_of
from app.web.serving.same_origin import is_from_elsewhere, is_ours
from app.web.serving.sessions import Sessions

_LOG: Final = logging.getLogger(__name__)

NOTICE_COOKIE: Final = "curlew_notice"
_NOTICE_SECONDS: Final = 60
_NOTICE_CHARS_MAX: Final = 500
SIGN_IN: Final = "sign-in"
_BY_ITSELF: Final = '<!doctype html><meta http-equiv="refresh" content="0;url={}">'
"""Whoever follows a link from elsewhere shows no cookie, also on a redirect; with the next address,
which this page asks for by itself, the cookie comes."""


class Site:
    """The pages. Its state are the sessions and the open streams."""

    def __init__(
        self,
        families: Sequence[Family],
        api: AsgiApp,
        clock: Clock,
        live: LiveStreams,
        *,
        translations: Mapping[str, NullTranslations] | None = None,
    ) -> None:
        self.families = families
        self.clock = clock
        self.live = live
        self.sessions = Sessions(clock)
        self.assets: Assets = packaged_assets()
        self.translations = translations or packaged_translations()
        self.templates = (
            Templates(self.assets, self.translations) if translations else packaged_templates()
        )
        self._api = api

    def application(self) -> Starlette:
        """To be mounted at `/ui`."""
        routes = [Route("/static/{name}", self._asset)]
        for family in self.families:
            routes += [
                Route(view.path, self._endpoint(family, view), methods=[view.method])
                for view in family.views
            ]
        return Starlette(
            routes=_by_path(routes),
            middleware=[Middleware(SecurityHeaders), Middleware(InNamespace)],
            exception_handlers={HTTPException: self._no_page},
        )

    def _endpoint(self, family: Family, view: View) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            page = self.page_of(request)
            try:
                return await answer(page, request)
            except Refused as error:
                return self.refused(page, family, error)
            except Exception:  # noqa: BLE001  # logged with its traceback
                _LOG.exception("unexpected failure of the page %s", page.path)
                problem = {"detail": page.gettext("The page failed; the node's log says why.")}
                return self.refused(page, family, Refused(500, problem))

        async def answer(page: Page, request: Request) -> Response:
            if view.method != "GET" and not is_ours(request.headers):
                raise _foreign(page)
            await self._begin(page, family)
            if view.method != "GET":
                page.choices = await _form_of(page, is_for_anybody=family.is_for_anybody)
                page.form = {name: texts[-1] for name, texts in page.choices.items()}
            outcome = await view.handler(page)
            if isinstance(outcome, Response):
                return outcome
            if isinstance(outcome, Moved):
                return self.moved(page, outcome)
            if page.is_live and view.live_s is not None:
                return self._stream(page, family, view, view.live_s)
            return self._render(page, family, outcome, live_s=view.live_s)

        return endpoint

    def page_of(self, request: Request) -> Page:
        """The request as handlers see it."""
        chosen = request.query_params.get("lang") or request.cookies.get(LANGUAGE_COOKIE)
        language = language_of(chosen, request.headers.get("accept-language", ""))
        session = self.sessions.find(session_name_of(request))
        namespace = request.scope.get(NAMESPACE, "")
        key = None if session is None else session.key
        api = Api(self._api, request.scope, key, namespace)
        path = request.scope.get(PATH, "/")
        translations = self.translations[language]
        return Page(
            request,
            api,
            path,
            namespace,
            language,
            translations,
            session,
            self.sessions,
        )

    async def _begin(self, page: Page, family: Family) -> None:
        """Learn who reads. Raises `Refused` with 401 for nobody on a node that asks for a name."""
        if not family.is_for_anybody:
            page.principal = (await page.api.ask("GET", "/v1/whoami")).json()["principal"]

    # --- answers

    def _render(
        self, page: Page, family: Family | None, shown: Shown, live_s: float | None = None
    ) -> Response:
        values = self._values(page, family, shown, live_s)
        text = self.templates.render(page.language, shown.template, values)
        response = HTMLResponse(text, shown.status)
        if page.request.cookies.get(NOTICE_COOKIE):
            response.delete_cookie(NOTICE_COOKIE, httponly=True, samesite="lax")
        return response

    def _stream(self, page: Page, family: Family, view: View, every_s: float) -> Response:
        if not self.live.has_room(page.principal):
            return Response(status_code=HTTPStatus.SERVICE_UNAVAILABLE)

        async def look() -> str:
            if self.sessions.find(page.session_name) is not page.session:
                raise Refused(HTTPStatus.UNAUTHORIZED, {})  # signed out meanwhile
            page.api.calls.clear()
            page.missing.clear()
            shown = await view.handler(page)
            assert isinstance(shown, Shown)
            values = self._values(page, family, shown, every_s)
            return self.templates.render_live(page.language, shown.template, values)

        events = self.live.follow(look, every_s, self.clock, page.principal)
        return StreamingResponse(events, media_type=MEDIA_TYPE)

    def _values(
        self, page: Page, family: Family | None, shown: Shown, live_s: float | None
    ) -> dict[str, Any]:
        notice = unquote(page.request.cookies.get(NOTICE_COOKIE, ""))
        signed_in = page.session is not None
        api_root = f"{page.site}/api" if signed_in else f"{page.site}/.."
        return {
            "page": page,
            "crumbs": [],
            "root": page.root,
            "site": page.site,
            "origin": page.origin,
            "curl": f"curl {_namespace_header(page)}{page.origin}/v1",
            "language": page.language,
            "theme": theme_of(page.request),
            "families": self.families,
            "has_search": any(each.name == "search" for each in self.families),
            "has_groups": any(each.name == "groups" for each in self.families),
            "family": family,
            "live": live_s is not None,
            "stream": page.here(),
            "notice": notice,
            "api_root": api_root,
            "calls": [_of_namespace(page, call) for call in page.api.calls],
            "now_ms": self.clock.now_ms(),
            "version": program_version(),
            "signed_in": signed_in,
            **shown.values,
        }

    def moved(self, page: Page, moved: Moved) -> Response:
        """The redirect behind a form."""
        response = RedirectResponse(f"{page.root}/{moved.path}", HTTPStatus.SEE_OTHER)
        if moved.notice:
            text = quote(moved.notice[:_NOTICE_CHARS_MAX])
            response.set_cookie(NOTICE_COOKIE, text, _NOTICE_SECONDS, httponly=True, samesite="lax")
        return response

    def refused(self, page: Page, family: Family | None, error: Refused) -> Response:
        """What the API has refused; a stranger is led to the sign-in and back."""
        if error.status == HTTPStatus.UNAUTHORIZED and not page.is_live:
            return self._to_sign_in(page)
        if page.is_live:
            return Response(status_code=error.status)
        values = {"problem": error.problem, "status": error.status}
        return self._render(page, family, Shown("frame/refused.html", values, error.status))

    def _to_sign_in(self, page: Page) -> Response:
        self.sessions.end(page.session_name)
        asked: dict[str, str] = {}
        if page.request.method == "GET" and page.way:
            asked["next"] = page.way
        if page.session_name:
            asked["why"] = "ended"
        query = f"?{urlencode(asked)}" if asked else ""
        way = f"{page.site}/{SIGN_IN}{query}"
        if page.session_name is None and is_from_elsewhere(page.request.headers):
            return HTMLResponse(_BY_ITSELF.format(escape(way)))
        return page.redirect(way)

    async def _no_page(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        values = {"problem": None, "status": error.status_code}
        shown = Shown("frame/refused.html", values, error.status_code)
        response = self._render(self.page_of(request), None, shown)
        response.headers.update(error.headers or {})
        return response

    async def _asset(self, request: Request) -> Response:
        found = self.assets.find(request.path_params["name"])
        if found is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        headers = {"Cache-Control": KEPT_FOR_EVER}
        return Response(found.content, media_type=found.media_type, headers=headers)


def _by_path(routes: list[Route]) -> list[Route]:
    """Words of a path go before names in it."""
    return sorted(routes, key=lambda route: ["{" in part for part in route.path.split("/")])


def _of_namespace(page: Page, call: str) -> str:
    """The address of a call, to be followed: it names the namespace that the page is of."""
    if not page.namespace:
        return call
    return f"{call}{'&' if '?' in call else '?'}{urlencode({'namespace': page.namespace})}"


def _namespace_header(page: Page) -> str:
    """What a line with curl says of the namespace, to be copied into a shell."""
    return f"-H {shlex.quote(f'MQ-Namespace: {page.namespace}')} " if page.namespace else ""


async def _form_of(page: Page, *, is_for_anybody: bool) -> dict[str, list[str]]:
    """The fields of a form. Raises `Refused` for one that is too long or no text."""
    bytes_max = UI_FORM_OF_ANYBODY_BYTES_MAX if is_for_anybody else UI_FORM_BYTES_MAX
    form = await _body_of(page, bytes_max)
    try:
        if len(form) <= UI_FORM_OF_ANYBODY_BYTES_MAX:
            return _fields_of(form)
        return await asyncio.to_thread(_fields_of, form)  # longer than a turn of the loop may take
    except ValueError as error:
        problem = {
            "detail": page.gettext("The form is no text in UTF-8, or has too many fields."),
            "hint": page.gettext("Go back and send it anew."),
        }
        raise Refused(HTTPStatus.BAD_REQUEST, problem) from error


async def _body_of(page: Page, bytes_max: int) -> bytes:
    parts, size = list[bytes](), 0
    try:
        async for part in page.request.stream():
            size += len(part)
            if size > bytes_max:
                detail = page.gettext("The form has over %(count)s bytes.")
                problem = {
                    "detail": detail % {"count": f"{bytes_max:,}"},
                    "hint": page.gettext("Send large messages with curl."),
                }
                raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, problem)
            parts.append(part)
    except ClientDisconnect:  # nobody reads this any more
        problem = {"detail": page.gettext("The form has no end.")}
        raise Refused(HTTPStatus.BAD_REQUEST, problem) from None
    return b"".join(parts)


def _fields_of(form: bytes) -> dict[str, list[str]]:
    return parse_qs(
        form.decode("ascii"),
        keep_blank_values=True,
        errors="strict",
        max_num_fields=UI_FORM_FIELDS_MAX,
    )


def _foreign(page: Page) -> Refused:
    problem = {
        "detail": page.gettext("A page of another origin has sent this form; nothing was done."),
        "hint": page.gettext("Open the page on this node, and send its form."),
    }
    return Refused(HTTPStatus.FORBIDDEN, problem)
