"""The requests of the control plane, over httpx."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from curlew_client.producing.attempts import lost
from curlew_client.session import Session
from curlew_client.wire.http1 import Answer
from curlew_client.wire.problems import error_of

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
Document = dict[str, Any]


class AsyncAsking:
    """Asks one node after the other, as the client chooses. Closed with the client."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._http: httpx.AsyncClient | None = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        json: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Document:
        """Any operation, by its path; an empty answer is an empty dict."""
        import httpx  # here: it takes longer to load than all the rest of the package

        session = self._session
        session.check_usable()
        if self._http is None:
            tls = session.options.tls
            self._http = httpx.AsyncClient(
                timeout=session.timeout_s, verify=True if tls is None else tls, trust_env=False
            )
        node = session.pick()
        try:
            answer = await self._http.request(
                method,
                node.url + path,
                json=json,
                params=params,
                headers={**session.headers_of(path), **(headers or {})},
            )
        except httpx.HTTPError as error:
            raise lost(error, node.url, has_written=True) from error
        if answer.status_code >= 300:
            raise error_of(_seen(answer), node.url)
        if not answer.content:
            return {}
        try:
            shown: Document = answer.json()
        except ValueError:
            raise error_of(_seen(answer), node.url) from None
        return shown

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def _ask(
        self,
        kind: type[T],
        method: str,
        path: str,
        *,
        params: Mapping[str, object] | None = None,
        json: Mapping[str, Any] | None = None,
        if_match: str | None = None,
        if_none_match: str | None = None,
    ) -> T:
        """What the node answers, which is of this kind: nothing checks it again."""
        headers = {}
        if if_match is not None:
            headers["if-match"] = if_match
        if if_none_match is not None:
            headers["if-none-match"] = if_none_match
        named = {
            name: value
            for name, value in (params or {}).items()
            if value is not None and value is not False
        }
        answer: Any = await self.request(
            method, path, json=json, params=named or None, headers=headers
        )
        return answer  # type: ignore[no-any-return]

    async def _all(
        self, kind: type[T], path: str, name: str, *, prefix: str | None = None
    ) -> list[T]:
        """The rows of all pages."""
        found: list[T] = []
        params = {"prefix": prefix} if prefix else {}
        while True:
            page = await self.request("GET", path, params=params)
            found += page[name]
            token = page.get("next_page_token")
            if not token:
                return found
            params["page_token"] = token


def _seen(answer: "httpx.Response") -> Answer:
    """The answer as the rest of the package has it."""
    lines = "".join(f"\r\n{name}: {value}" for name, value in answer.headers.items())
    head = f"HTTP/1.1 {answer.status_code} X{lines}".encode("latin-1", "replace")
    return Answer(answer.status_code, head, answer.content, keep_alive=True)
