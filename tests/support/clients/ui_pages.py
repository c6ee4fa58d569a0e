"""Every page of the pages at `/ui`, and what a node is filled with so that each has something to
show. What a client may choose is hostile: it must be shown as text."""

from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from tests.support.clients.ui_consuming import (
    CONSUMING_PAGES,
    EMPTY_CONSUMING_PAGES,
    fill_consuming,
)

HOSTILE: Final = "<img src=x onerror=\"document.title='broken'\">'&{{7*7}}<script>alert(1)</script>"
"""Planted wherever a client may write what it likes."""
BIG_NUMBER: Final = "23958446825181076828"
"""More than 64 bits; a browser would round it."""


@dataclass
class Filled:
    """A node with something of everything. `ids` are of what was made, by what it is."""

    url: str
    ids: dict[str, str] = field(default_factory=dict)

    def page(self, path: str) -> str:
        """The address of a page, with the ids put in."""
        return f"{self.url}/ui/{path.format(**self.ids)}"


PAGES: Final[dict[str, str]] = {
    "overview": "",
    "topics": "topics",
    "topics-none": "topics?prefix=none",
    "topic": "topics/orders",
    "topic-long-name": "topics/telemetry-of-all-vehicles-in-the-northern-fleet-and-of-some-others",
    "topic-groups": "topics/orders/groups",
    "topic-settings": "topics/orders/settings",
    "publish": "topics/orders/publish",
    "publish-copy": "topics/orders/publish?copy={message}",
    "messages": "topics/orders/messages",
    "messages-none": "topics/orders/messages?tag=none",
    "messages-refused": "topics/orders/messages?filter=sql:a+AND",
    "message": "topics/orders/messages/{message}",
    "message-json": "topics/orders/messages/{json}",
    "message-hex": "topics/orders/messages/{binary}",
    "tail": "topics/orders/tail",
    "search": "search?q=o",
    "search-message": "search?q={message}",
    "search-nothing": "search?q=nothing-is-called-so",
    **CONSUMING_PAGES,
    "missing": "no-such-page",
    "sign-in": "sign-in",
}
"""Name of the picture → path below `/ui/`, with names of `Filled.ids` in braces. All that have
something to show."""

EMPTY_PAGES: Final[dict[str, str]] = {
    "overview": "",
    "topics": "topics",
    "search": "search",
    **EMPTY_CONSUMING_PAGES,
}
"""The same, on a node that has nothing yet."""


def fill(url: str) -> Filled:
    """Make something of everything."""
    filled = Filled(url)
    with httpx.Client(base_url=url, timeout=60) as client:
        _topics(client)
        _messages(client, filled)
        filled.ids.update(fill_consuming(client, HOSTILE))
    return filled


def _topics(client: httpx.Client) -> None:
    for name, settings in {
        "orders": {"queues": 4},
        "audit": {"queues": 1, "type": "fifo"},
        "reminders": {"queues": 2, "type": "delay"},
        "payments": {"queues": 2, "type": "transaction"},
        "telemetry-of-all-vehicles-in-the-northern-fleet-and-of-some-others": {"queues": 8},
    }.items():
        _ok(client.put(f"/v1/topics/{name}", json=settings))


def _messages(client: httpx.Client, filled: Filled) -> None:
    sent = _ok(
        client.post(
            "/v1/topics/orders/messages",
            headers={"Content-Type": "application/vnd.curlew+json"},
            json={
                "text": HOSTILE,
                "tag": "created",
                "keys": ["o-17", HOSTILE.replace(" ", "_")],
                "properties": {"region": HOSTILE, "trace": "t-1"},
            },
        )
    )
    filled.ids["message"] = sent["message_id"]
    for number in range(30):
        body = f'{{"id":{BIG_NUMBER},"price":1.10,"place":{number}}}'.encode()
        headers = {"MQ-Tag": "paid" if number % 3 else "created", "MQ-Keys": f"o-{number}"}
        sent = _ok(client.post("/v1/topics/orders/messages", content=body, headers=headers))
    filled.ids["json"] = sent["message_id"]
    octets = {"Content-Type": "application/octet-stream"}
    body = bytes(range(256))
    sent = _ok(client.post("/v1/topics/orders/messages", content=body, headers=octets))
    filled.ids["binary"] = sent["message_id"]
    for group in ("billing", "a-group-with-a-name-that-is-as-long-as-names-become-in-practice"):
        where = f"/v1/topics/orders/groups/{group}/messages:receive?max_messages=5"
        handles = [each["receipt_handle"] for each in _ok(client.post(where))["messages"]]
        _ok(client.delete(f"/v1/receipts/{handles[0]}"))


def _ok(answer: httpx.Response) -> Any:
    assert answer.is_success, answer.text
    return answer.json() if answer.content else None
