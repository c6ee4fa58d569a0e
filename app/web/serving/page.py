"""One request for a page, as its handler sees it, and what a handler may answer.

Addresses in pages are relative to the page (`root`), so that they hold behind a proxy that adds a
prefix, and within a namespace (`/ui/in/{namespace}/…`), with nothing set.
"""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from gettext import NullTranslations
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.web.serving.api import Api, Document, Json, Refused, address
from app.web.serving.sessions import Session, Sessions, session_name

PAGE_SIZE: Final = 50
_PREFIX: Final = re.compile(r"(/[A-Za-z0-9._~-]+)*")


@dataclass(frozen=True, slots=True)
class Shown:
    """A page is rendered from `template` with `values`."""

    template: str
    values: Mapping[str, Any]
    status: int = HTTPStatus.OK


@dataclass(frozen=True, slots=True)
class Moved:
    """The browser is sent to `path`, relative to the pages' root; `notice` is shown there once."""

    path: str
    notice: str = ""


Outcome = Shown | Moved | Response


@dataclass(slots=True)
class Page:
    """A request. `api` asks the node as the reader of the page."""

    request: Request
    api: Api
    path: str
    """Below the namespace, as sent: `/topics/orders`."""
    namespace: str
    """Empty: the default one."""
    language: str
    translations: NullTranslations
    session: Session | None
    sessions: Sessions
    form: Mapping[str, str] = field(default_factory=dict)
    """Of a POST; the last one of each name."""
    choices: Mapping[str, list[str]] = field(default_factory=dict)
    """Of a POST, all of each name."""
    principal: str | None = None
    """Who reads; None: the node asks nobody for a name."""
    missing: dict[str, Json] = field(default_factory=dict)
    """Parts that cannot be shown now, with why."""
    memory: dict[str, Any] = field(default_factory=dict)
    """Of a live page: what a handler keeps from one time to the next."""

    # --- what was asked

    def name(self, name: str) -> str:
        """A name in the path."""
        return str(self.request.path_params[name])

    def query(self, name: str, otherwise: str = "") -> str:
        """A parameter of the address, without blanks around it."""
        return self.request.query_params.get(name, otherwise).strip()

    def exactly(self, name: str) -> str:
        """A parameter of the address with the blanks that it has: a name that may have them."""
        return self.request.query_params.get(name, "")

    def number(self, name: str) -> int | None:
        """A parameter that is a whole number; None when it is left out or is none."""
        text = self.query(name)
        return int(text) if re.fullmatch(r"-?[0-9]{1,20}", text) else None

    @property
    def is_live(self) -> bool:
        """Whether the answer goes on while the page is open."""
        return "text/event-stream" in self.request.headers.get("accept", "")

    # --- what it shows

    async def get(self, *names: str, **query: str | int | None) -> Document:
        """What `GET /v1/{names}` answers; it stands under "as JSON". Raises `Refused`."""
        return await self.api.get(*names, **query)

    async def find(self, *names: str, **query: str | int | None) -> Document:
        """As `part`; None also when there is no such thing or the reader may not see it."""
        try:
            return await self.part(*names, **query)
        except Refused as error:
            if error.status in {HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN}:
                return None
            raise

    async def part(self, *names: str, **query: str | int | None) -> Document:
        """As `get`, of a part without which the page is a page all the same: None when the node
        cannot answer for it now, and the page says so above the rest."""
        try:
            return await self.api.get(*names, **query)
        except Refused as error:
            self.lacks(address(*names, query=query), error)
            return None

    def is_missing(self, *names: str, **query: str | int | None) -> bool:
        """Whether that `part` is one that cannot be shown now."""
        return address(*names, query=query) in self.missing

    def lacks(self, what: str, error: Refused) -> None:
        """Have the page say that a part is not shown, and why. Raises `error` again when it is a
        refusal of this request, and none of what the node can answer now."""
        if error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            raise error
        self.missing[what] = error.problem

    async def act(
        self,
        method: str,
        *names: str,
        query: Mapping[str, str | int | None] | None = None,
        **more: Document,
    ) -> Document:
        """What a request that changes something answers. `more`: `json`, `body`, `headers`."""
        return (await self.api.ask(method, address(*names, query=query), **more)).json()

    async def may(self, action: str, **named: str) -> bool:
        """Whether the reader may do it: `may("PUB", topic="orders")`; with no name, to the
        cluster. Everything on an open node."""
        if self.principal is None:
            return True
        where = address("whoami", query={"action": action, **named})
        return bool((await self.api.ask("GET", where)).json()["allowed"])

    def show(self, template: str, *, status: int = HTTPStatus.OK, **values: Document) -> Shown:
        """The outcome of a handler that shows something."""
        return Shown(template, values, status)

    def gettext(self, message: str) -> str:
        """The message in the reader's language."""
        return self.translations.gettext(message)

    def ngettext(self, one: str, many: str, n: int) -> str:
        """The same for a number of things."""
        return self.translations.ngettext(one, many, n)

    # --- addresses

    @property
    def root(self) -> str:
        """From this page to the root of the pages: `.`, `..`, `../..`; no slash behind it."""
        return "/".join([".."] * (self.path.count("/") - 1)) or "."

    @property
    def site(self) -> str:
        """The same to what is outside of namespaces: sign-in and static files."""
        return f"{self.root}/../.." if self.namespace else self.root

    def here(self, **changed: str | int | None) -> str:
        """This page with other parameters, relative to itself; None takes one out."""
        query = {**self.request.query_params, **changed}
        given = {name: value for name, value in query.items() if value not in (None, "")}
        return f"?{urlencode(given)}"

    def redirect(self, where: str) -> Response:
        """To an address relative to this one, by GET."""
        return RedirectResponse(where, HTTPStatus.SEE_OTHER)

    @property
    def way(self) -> str:
        """This page as `next` has it: below the root of all pages, with its parameters."""
        within = f"in/{self.namespace}" if self.namespace else ""
        query = self.request.url.query
        return f"{within}{self.path}".lstrip("/") + (f"?{query}" if query else "")

    @property
    def session_name(self) -> str | None:
        """What the browser shows as its session, whether or not there is one of that name."""
        return session_name_of(self.request)

    @property
    def is_encrypted(self) -> bool:
        """Whether the browser speaks TLS, also when a proxy does so for this node."""
        origin = self.request.headers.get("origin", "")
        return self.request.url.scheme == "https" or origin.startswith("https:")

    @property
    def origin(self) -> str:
        """How the node was asked, with a proxy's prefix, for lines to copy."""
        url = self.request.url
        prefix = self.request.headers.get("x-forwarded-prefix", "").rstrip("/")
        shown = prefix if _PREFIX.fullmatch(prefix) else ""
        return f"{url.scheme}://{url.netloc}{shown}"

    @property
    def token(self) -> str:
        """Tells a form that is sent twice from two forms; new for each page."""
        return secrets.token_hex(16)


def session_name_of(request: Request) -> str | None:
    """What the browser of a request shows as its session."""
    return session_name(request.cookies, is_encrypted=request.url.scheme == "https")
