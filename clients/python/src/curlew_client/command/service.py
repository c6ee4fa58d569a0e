"""Which node a command speaks to, and its requests, over the client's blocking connections.

The address comes from `--url` or `--context`, else `CURLEW_URL`, `CURLEW_CONTEXT`, the context in
use, else it is the node on this machine. The key comes from `--key-file`, else from the context,
else `CURLEW_KEY`. The key of a context goes to the node of that context only.
"""

import json as jsonlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from curlew_client.command.contexts import NAME_VARIABLE, Context, Contexts
from curlew_client.command.words import NotSo
from curlew_client.options import DEFAULT_URL, URL_VARIABLE, Options
from curlew_client.wire.durations import seconds_of
from curlew_client.wire.problems import check_is_curlew, error_of

Document = dict[str, Any]

PAGE: int = 1_000


class Where(NamedTuple):
    """The options of every command; `catalog.OPTIONS` says what they are."""

    url: str | None = None
    context: str | None = None
    key_file: Path | None = None
    namespace: str | None = None
    timeout: str = "10s"
    json: bool = False


def context_of(where: Where) -> Context:
    """Address, key and what else belongs to the node."""
    found: Context = {}
    if where.url is not None:
        if where.context is not None:
            raise NotSo("give --url or --context, not both")
        found = {"url": where.url}
    elif where.context is not None:
        found = dict(Contexts.read().named(where.context))
    elif os.environ.get(URL_VARIABLE):
        found = {"url": os.environ[URL_VARIABLE]}
    else:
        contexts = Contexts.read()
        name = os.environ.get(NAME_VARIABLE) or contexts.current
        found = dict(contexts.named(name)) if name else {"url": DEFAULT_URL}
    if where.key_file is not None:
        found["key"] = key_in(where.key_file)
    if where.namespace is not None:
        found["namespace"] = where.namespace
    return found


def key_in(file: Path) -> str:
    """The API key in a file."""
    try:
        return file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise NotSo(f"the key file {file} cannot be read: {error}") from None


_OPEN: list["Service"] = []


def close_all() -> None:
    """Close what the command has opened."""
    while _OPEN:
        _OPEN.pop().close()


class Service:
    """The node of one command. Open until `close_all`."""

    def __init__(self, where: Where) -> None:
        from curlew_client.blocking.pool import BlockingPool
        from curlew_client.blocking.sending import BlockingSender
        from curlew_client.session import Session

        found = context_of(where)
        self.timeout_s = seconds_of("--timeout", where.timeout)
        self.context = found
        options = Options.of(
            {
                "timeout": self.timeout_s,
                "tls": tls_of(found.get("ca_file")),
                "namespace": found.get("namespace") or None,
            }
        )
        self.session = Session(found["url"], key=found.get("key"), options=options)
        self.session.check_usable()
        connect_s = min(self.session.connect_timeout_s, self.timeout_s)
        self._pool = BlockingPool(options.tls, connect_s)
        self.sender = BlockingSender(self.session, self._pool)
        _OPEN.append(self)

    def close(self) -> None:
        """Close its connections."""
        self._pool.close()
        self.session.closed()

    def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        params: Document | None = None,
        wait_s: float = 0.0,
    ) -> Document:
        """Any operation; an empty answer is an empty dict. Raises a `CurlewError`.

        `wait_s`: how long the node may wait by intention.
        """
        target = path + (f"?{urlencode(_given(params))}" if params else "")
        lines, body = "", b""
        if json is not None:
            lines = "content-type: application/json\r\n"
            body = jsonlib.dumps(json, ensure_ascii=False).encode()
        answer, url = self.sender.call(
            method,
            target,
            body,
            lines=lines,
            timeout_s=self.timeout_s + wait_s,
            retries=1 if method == "GET" else 0,
            is_long=wait_s > 0,
        )
        check_is_curlew(answer, url)
        if not answer.body:
            return {}
        try:
            shown = jsonlib.loads(answer.body)
        except ValueError:
            raise error_of(answer, url) from None
        return shown if isinstance(shown, dict) else {"": shown}

    def get(self, path: str, **params: Any) -> Document:
        return self.request("GET", path, params=params)

    def pages(self, path: str, member: str, **params: Any) -> Iterator[Document]:
        """The rows of a list, all its pages."""
        while True:
            page = self.request("GET", path, params={"page_size": PAGE, **params})
            yield from page[member]
            token = page.get("next_page_token")
            if not token:
                return
            params["page_token"] = token


def tls_of(ca_file: str | None) -> Any:
    """Trust in the certificates of one file besides; None: in those of this machine."""
    if not ca_file:
        return None
    import ssl

    context = ssl.create_default_context()
    try:
        context.load_verify_locations(ca_file)
    except (OSError, ssl.SSLError) as error:
        raise NotSo(f"the certificates in {ca_file} cannot be read: {error}") from None
    return context


def _given(params: Document | None) -> Document:
    shown = {}
    for name, value in (params or {}).items():
        if value is None:
            continue
        shown[name] = str(value).lower() if isinstance(value, bool) else value
    return shown


def part(text: str) -> str:
    """A name as a part of a path."""
    from urllib.parse import quote

    if not text or text in {".", ".."}:
        raise NotSo(f"{text!r} is no name")
    return quote(text, safe="")
