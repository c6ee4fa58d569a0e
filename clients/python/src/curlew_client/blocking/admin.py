# Made from aio/admin.py by make_blocking.py. Change that, and run it.
"""The control plane: topics, groups, offsets, dead letters and the node itself, over httpx.

Answers are the documents of the node, as dicts; what they have is in the HTTP API's document.
"""

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from curlew_client.producing.attempts import lost
from curlew_client.session import Session
from curlew_client.wire.http1 import Answer
from curlew_client.wire.problems import error_of

if TYPE_CHECKING:
    import httpx

Document = dict[str, Any]


class Admin:
    """What an operator does. Of a client, and closed with it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._http: httpx.Client | None = None

    def request(
        self, method: str, path: str, *, json: Any = None, params: Document | None = None
    ) -> Document:
        """Any operation, by its path; an empty answer is an empty dict."""
        import httpx  # here: it takes longer to load than all the rest of the package

        session = self._session
        session.check_usable()
        if self._http is None:
            tls = session.options.tls
            self._http = httpx.Client(
                timeout=session.timeout_s, verify=True if tls is None else tls, trust_env=False
            )
        node = session.pick()
        try:
            answer = self._http.request(
                method,
                node.url + path,
                json=json,
                params=params,
                headers=session.authorization,
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

    def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            self._http.close()
            self._http = None

    # --- topics

    def topics(self, prefix: str = "") -> list[Document]:
        """All topics."""
        return self._all("/v1/topics", "topics", prefix)

    def topic(self, topic: str) -> Document:
        return self.request("GET", f"/v1/topics/{quote(topic, safe='')}")

    def put_topic(self, topic: str, *, dry_run: bool = False, **settings: Any) -> Document:
        """Make a topic, or set these of its settings, such as `queues=4`."""
        path = f"/v1/topics/{quote(topic, safe='')}"
        return self.request("PUT", path, json=settings, params=_dry(dry_run))

    def delete_topic(self, topic: str, *, dry_run: bool = False) -> Document:
        path = f"/v1/topics/{quote(topic, safe='')}"
        return self.request("DELETE", path, params=_dry(dry_run))

    def topic_stats(self, topic: str) -> Document:
        return self.request("GET", f"/v1/topics/{quote(topic, safe='')}/stats")

    def messages(self, topic: str, **params: Any) -> list[Document]:
        """A page of messages, for instance by `key=` or `unique_id=`."""
        path = f"/v1/topics/{quote(topic, safe='')}/messages"
        return list((self.request("GET", path, params=params))["messages"])

    # --- groups

    def groups(self, prefix: str = "") -> list[Document]:
        """All consumer groups."""
        return self._all("/v1/groups", "groups", prefix)

    def group(self, group: str) -> Document:
        return self.request("GET", f"/v1/groups/{quote(group, safe='')}")

    def put_group(self, group: str, *, dry_run: bool = False, **settings: Any) -> Document:
        """Make a group, or set these of its settings, such as `order="fifo"`."""
        path = f"/v1/groups/{quote(group, safe='')}"
        return self.request("PUT", path, json=settings, params=_dry(dry_run))

    def delete_group(self, group: str, *, dry_run: bool = False) -> Document:
        path = f"/v1/groups/{quote(group, safe='')}"
        return self.request("DELETE", path, params=_dry(dry_run))

    def lag(self, group: str) -> Document:
        return self.request("GET", f"/v1/groups/{quote(group, safe='')}/lag")

    def pause(self, group: str) -> Document:
        return self.request("POST", f"/v1/groups/{quote(group, safe='')}:pause")

    def resume(self, group: str) -> Document:
        return self.request("POST", f"/v1/groups/{quote(group, safe='')}:resume")

    def reset_offsets(
        self, group: str, topic: str, *, to: str, dry_run: bool = False, **more: Any
    ) -> Document:
        """Set a group back or forward: `to` is `earliest`, `latest`, `timestamp`, `offset` or
        `shift`, with `timestamp_ms`, `offset` or `shift` beside it."""
        path = f"/v1/groups/{quote(group, safe='')}/offsets/{quote(topic, safe='')}:reset"
        return self.request("POST", path, json={"to": to, **more}, params=_dry(dry_run))

    # --- dead letters

    def dead_letters(self, group: str, **params: Any) -> list[Document]:
        """A page of dead letters; `topic`, `filter`, `reason` and times choose some."""
        path = f"/v1/groups/{quote(group, safe='')}/dlq/messages"
        return list((self.request("GET", path, params=params))["messages"])

    def redrive(self, group: str, *, dry_run: bool = False, **chosen: Any) -> Document:
        """Deliver dead letters again: `all=True`, `offsets=[…]`, `reason=…`."""
        path = f"/v1/groups/{quote(group, safe='')}/dlq/messages:redrive"
        return self.request("POST", path, json=chosen, params=_dry(dry_run))

    def purge(self, group: str, *, dry_run: bool = False, **chosen: Any) -> Document:
        """Remove dead letters for ever, chosen in the same ways."""
        path = f"/v1/groups/{quote(group, safe='')}/dlq/messages:purge"
        return self.request("POST", path, json=chosen, params=_dry(dry_run))

    # --- the node

    def limits(self) -> Document:
        return self.request("GET", "/v1/limits")

    def readiness(self) -> Document:
        """Raises while the node takes no requests."""
        return self.request("GET", "/readyz")

    def _all(self, path: str, name: str, prefix: str) -> list[Document]:
        found: list[Document] = []
        params: Document = {"prefix": prefix} if prefix else {}
        while True:
            page = self.request("GET", path, params=params)
            found += page[name]
            token = page.get("next_page_token")
            if not token:
                return found
            params["page_token"] = token


def _dry(dry_run: bool) -> Document | None:
    return {"dry_run": "true"} if dry_run else None


def _seen(answer: "httpx.Response") -> Answer:
    """The answer as the rest of the package has it."""
    lines = "".join(f"\r\n{name}: {value}" for name, value in answer.headers.items())
    head = f"HTTP/1.1 {answer.status_code} X{lines}".encode("latin-1", "replace")
    return Answer(answer.status_code, head, answer.content, keep_alive=True)
