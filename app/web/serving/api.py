"""The node's own API, asked in the process: what a page shows is what the API answers.

A call goes through the whole gateway, as one over a connection would: who asks is known by the same
credentials, may the same, counts against the same quotas and stands in the same audit. So no row is
built twice, no page shows what its reader may not see, and each page can name the requests behind
it. There is no socket and no second task; a call costs what the request costs. Event loop only.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote, urlencode

import msgspec

AsgiApp = Callable[
    [
        MutableMapping[str, Any],
        Callable[[], Awaitable[MutableMapping[str, Any]]],
        Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ],
    Awaitable[None],
]
Json = dict[str, Any]
Document = Any
"""JSON as it was decoded."""
Query = Mapping[str, str | int | None]
Asked = dict[str, str | int | None]
"""A query that is made step by step."""

PREFIX: Final = "/v1"
_PASSED_ON: Final = frozenset({b"host", b"authorization", b"user-agent"})
"""Headers of the page's request that its calls have as well."""


class Refused(Exception):
    """The API has answered with a problem: `problem` is the document, with `code`, `detail` and
    `hint`."""

    def __init__(self, status: int, problem: Json) -> None:
        super().__init__(problem.get("detail") or problem.get("title") or str(status))
        self.status = status
        self.problem: Json = {"title": "", "detail": "", "hint": "", "code": "", **problem}


class Answer(NamedTuple):
    """What the API has answered."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes

    def json(self) -> Document:
        """The body; None without one."""
        return msgspec.json.decode(self.body) if self.body else None


def address(*names: str, query: Query | None = None) -> str:
    """`/v1/` and the names, and the query without what is empty or None."""
    path = "/".join([PREFIX, *(quote(name, safe=":") for name in names)])
    given = {name: value for name, value in (query or {}).items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


class Api:
    """Asks `app` for one page. `calls` are the addresses that were read, in their order."""

    def __init__(
        self,
        app: AsgiApp,
        scope: Mapping[str, Any],
        key: bytes | None = None,
        namespace: str = "",
    ) -> None:
        """`scope` is of the page's request; `key` is the API key of its session."""
        self._app = app
        self._scope = scope
        headers = [(name, value) for name, value in scope["headers"] if name in _PASSED_ON]
        if key is not None and all(name != b"authorization" for name, _ in headers):
            headers.append((b"authorization", b"Bearer " + key))
        if namespace:
            headers.append((b"mq-namespace", namespace.encode()))
        self._headers = headers
        self.calls: list[str] = []

    def with_key(self, key: bytes) -> "Api":
        """Asks with this key, whatever the page's request has shown."""
        scope = dict(self._scope)
        scope["headers"] = [each for each in scope["headers"] if each[0] != b"authorization"]
        return Api(self._app, scope, key)

    async def get(self, *names: str, **query: str | int | None) -> Document:
        """What `GET /v1/{names}` answers, as JSON. Raises `Refused`."""
        where = address(*names, query=query)
        self.calls.append(where)
        return (await self.ask("GET", where)).json()

    async def ask(
        self,
        method: str,
        where: str,
        *,
        json: object = None,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        bad: int | None = None,
    ) -> Answer:
        """Any request; `json` is its body, or `body` is. Raises `Refused`, but for the status
        `bad`."""
        answer = await self._call(method, where, json, body, headers or {})
        if answer.status >= HTTPStatus.BAD_REQUEST and answer.status != bad:
            raise Refused(answer.status, _problem(answer))
        return answer

    async def _call(
        self,
        method: str,
        where: str,
        json: object,
        body: bytes,
        headers: Mapping[str, str],
    ) -> Answer:
        sent = [*self._headers, (b"accept", b"application/json")]
        if json is not None:
            body = msgspec.json.encode(json)
            kind = "merge-patch+json" if method == "PATCH" else "json"
            if "Content-Type" not in headers:
                sent.append((b"content-type", f"application/{kind}".encode()))
        if body or method not in {"GET", "DELETE"}:
            sent.append((b"content-length", b"%d" % len(body)))
        sent += [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        path, _, query = where.partition("?")
        await asyncio.sleep(0)  # a call may wait for nothing, and a page makes hundreds of them
        return await _answered(self._app, self._scope_of(method, path, query, sent), body)

    def _scope_of(
        self, method: str, path: str, query: str, headers: list[tuple[bytes, bytes]]
    ) -> Json:
        outer = self._scope
        return {
            "type": "http",
            "asgi": outer.get("asgi", {"version": "3.0"}),
            "http_version": "1.1",
            "method": method,
            "scheme": outer.get("scheme", "http"),
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": headers,
            "client": outer.get("client"),
            "server": outer.get("server"),
            "extensions": {
                name: value
                for name, value in (outer.get("extensions") or {}).items()
                if name == "curlew.certificate"
            },
            "state": outer.get("state", {}),
        }


async def _answered(app: AsgiApp, scope: Json, body: bytes) -> Answer:
    status, headers, parts, requests = 0, dict[bytes, bytes](), list[bytes](), [body]

    async def receive() -> MutableMapping[str, Any]:
        if not requests:
            await asyncio.get_running_loop().create_future()
        return {"type": "http.request", "body": requests.pop(), "more_body": False}

    async def send(event: MutableMapping[str, Any]) -> None:
        nonlocal status
        if event["type"] == "http.response.start":
            status = event["status"]
            headers.update(event["headers"])
        elif event["type"] == "http.response.body":
            parts.append(bytes(event.get("body", b"")))

    await app(scope, receive, send)
    return Answer(status, headers, b"".join(parts))


def _problem(answer: Answer) -> Json:
    try:
        found = answer.json()
    except msgspec.DecodeError:
        found = None
    if isinstance(found, dict):
        return found
    return {"status": answer.status, "title": HTTPStatus(answer.status).phrase, "detail": ""}
