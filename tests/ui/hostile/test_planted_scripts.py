"""What clients may write anywhere is shown as text, in Chromium, also what addresses say.

A field is in one of two tables: what a page shows of it, or that its grammar refuses markup. No
page shows an idempotency key; one is planted so that it would be noticed. Bodies, keys, property
values, reasons and schedules are in `ui_pages` too, for every page.
"""

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote, urlencode

import httpx
import pytest
from playwright.sync_api import Browser

from tests.support.clients.browser import Watched, watched_page
from tests.support.nodes.node import run_node

pytestmark = pytest.mark.browser

ORDERS: Final = "/v1/topics/orders"
ENVELOPE: Final = {"Content-Type": "application/vnd.curlew+json"}


def planted(field: str, space: str = " ") -> str:
    """Markup that would show an image and rename the page; tells which field it came from."""
    text = f"<img src=x onerror=\"document.title='broken'\"><i>'&{{{{7*7}}}}{field}"
    return text.replace(" ", space)


SPACELESS: Final = "/"
"""Stands between attributes of a tag, too, where keys and ids take no spaces."""
MESSAGE: Final[dict[str, Any]] = {
    "text": planted("text"),
    "tag": planted("tag"),
    "keys": [planted("key", SPACELESS)],
    "sharding_key": planted("sharding key"),
    "content_type": planted("content type"),
    "properties": {planted("property name"): planted("property")},
}
UNIQUE: Final = planted("unique id", SPACELESS)
OF_A_SEND: Final = {
    "User-Agent": planted("sender's program"),
    "MQ-Client-Id": planted("sender"),
}
RECEIVER: Final = planted("receiver")
OF_A_RECEIVE: Final = {"User-Agent": planted("receiver's program")}
FILTER: Final = planted("filter")
REASON: Final = planted("reason")
KEY: Final = planted("idempotency key").replace('"', "'")

LISTED: Final = (MESSAGE["tag"], MESSAGE["keys"][0])
SHOWN: Final[dict[str, tuple[str, ...]]] = {
    "topics/orders/messages": (*LISTED, MESSAGE["text"]),
    "topics/orders/messages/{message}": (
        *(*LISTED, MESSAGE["text"], MESSAGE["sharding_key"], MESSAGE["content_type"], UNIQUE),
        *(*MESSAGE["properties"], *MESSAGE["properties"].values(), OF_A_SEND["MQ-Client-Id"]),
        RECEIVER,
    ),
    "clients?topic=orders": tuple(OF_A_SEND.values()),
    f"clients?{urlencode({'client': OF_A_SEND['MQ-Client-Id']})}": tuple(OF_A_SEND.values()),
    f"clients?{urlencode({'client': RECEIVER})}": (RECEIVER, *OF_A_RECEIVE.values()),
    "groups/billing/clients": (RECEIVER, *OF_A_RECEIVE.values()),
    "groups/shipping/members": (FILTER,),
    "clients?client=reader": (FILTER,),
    "dead-letters/billing": (*LISTED, REASON, MESSAGE["text"]),
    "delayed/reminders": LISTED,
    "schedules/nightly": (*LISTED, *MESSAGE["properties"], MESSAGE["text"]),
}
"""Path below `/ui/` → what stands there, letter by letter."""

REPEATED: Final = (
    *(f"topics/orders/messages?{name}={{}}" for name in ("tag", "key", "text", "filter", "from")),
    *("topics?prefix={}", "topics/{}", "topics/orders/messages/{}", "search?q={}"),
    *("groups?prefix={}", "groups/{}", "dead-letters/billing?reason={}", "schedules/{}"),
    *("clients?client={}", "clients?group={}", "clients?topic={}", "transactions/{}"),
    *("topics/orders/messages?page_token={}", "audit?since={}", "audit?principal={}", "{}"),
)
"""Addresses that anybody may have somebody open; a page repeats parts of most of them."""

PLAIN: Final = {"text": "hello"}
CRON: Final = {"cron": "0 3 * * *", "topic": "orders", "message": PLAIN}
READS: Final = {"subscriptions": [{"topic": "orders"}]}
IN_A_PATH: Final = quote(planted("name").replace("/", ""), safe="")
REFUSED: Final[dict[str, tuple[str, str, dict[str, str], Any]]] = {
    "topic": ("PUT", f"/v1/topics/{IN_A_PATH}", {}, {}),
    "group": ("PUT", f"/v1/groups/{IN_A_PATH}", {}, {}),
    "member": ("PUT", f"/v1/groups/shipping/members/{IN_A_PATH}", {}, READS),
    "schedule": ("PUT", f"/v1/schedules/{IN_A_PATH}", {}, CRON),
    "time zone": ("PUT", "/v1/schedules/other", {}, CRON | {"timezone": planted("zone")}),
    "principal": ("PUT", f"/v1/principals/{IN_A_PATH}", {}, {}),
    "namespace": ("PUT", "/v1/topics/other", {"MQ-Namespace": planted("namespace")}, {}),
    "host": ("PUT", "/v1/topics/other", {"Host": planted("host")}, {}),
    "producer group of a transaction": (
        *("POST", "/v1/topics/payments/messages"),
        {"MQ-Transaction": f"prepare; group={planted('group')}"} | ENVELOPE,
        PLAIN,
    ),
    "producer id": (
        *("POST", f"{ORDERS}/messages"),
        {"MQ-Producer-Id": planted("id"), "MQ-Producer-Epoch": "0", "MQ-Producer-Seq": "0"}
        | ENVELOPE,
        PLAIN,
    ),
}
"""Field → method, path, headers, body. What pages show of these is of the grammar of names."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with run_node(tmp_path_factory.mktemp("planted") / "data") as running:
        yield running.url


@pytest.fixture(scope="module")
def message(node: str) -> str:
    """Plants in every field; the id of a message that has all of its own."""
    with httpx.Client(base_url=node, timeout=60) as client:

        def ask(method: str, path: str, body: Any, headers: dict[str, str] | None = None) -> Any:
            answer = client.request(method, path, json=body, headers=headers)
            assert answer.is_success, answer.text
            return answer.json() if answer.content else None

        ask("PUT", ORDERS, {"queues": 1, "trace": "on"})
        ask("PUT", "/v1/topics/reminders", {"queues": 1, "type": "delay"})
        ask("PUT", "/v1/topics/payments", {"queues": 1, "type": "transaction"})
        send = OF_A_SEND | ENVELOPE
        keyed = send | {"Idempotency-Key": f'"{KEY}"'}
        sent = ask("POST", f"{ORDERS}/messages", MESSAGE | {"unique_id": UNIQUE}, keyed)
        where = f"{ORDERS}/groups/billing/messages"
        named = urlencode({"client_id": RECEIVER})
        taken = ask("POST", f"{where}:receive?{named}", {"max_messages": 1}, OF_A_RECEIVE)
        handle = taken["messages"][0]["receipt_handle"]
        letters = {"dead_letters": [{"receipt_handle": handle, "reason": REASON}]}
        ask("POST", f"{where}:settle", letters)
        reads = {"subscriptions": [{"topic": "orders", "filter": FILTER}]}
        ask("PUT", "/v1/groups/shipping/members/reader", reads)
        ask("POST", "/v1/topics/reminders/messages", MESSAGE, send | {"MQ-Delay": "1h"})
        nightly = {name: MESSAGE[name] for name in ("text", "tag", "keys", "properties")}
        ask("PUT", "/v1/schedules/nightly", CRON | {"message": nightly})
        return str(sent["message_id"])


def assert_nothing_came_alive(watched: Watched) -> None:
    assert watched.page.locator("img[src=x], main i").count() == 0
    assert "broken" not in watched.page.title()
    assert watched.policy_violations() == []
    assert "49" not in watched.page.title()


@pytest.mark.parametrize("path", SHOWN)
def test_what_a_client_writes_is_shown_as_text(
    browser: Browser, node: str, message: str, path: str
) -> None:
    with watched_page(browser) as watched:
        answer = watched.page.goto(f"{node}/ui/{path.replace('{message}', message)}")
        assert answer is not None
        assert answer.ok
        shown = watched.page.locator("main").inner_text()
        assert [each for each in SHOWN[path] if each not in shown] == []
        assert_nothing_came_alive(watched)


def test_a_copy_has_what_was_planted_in_its_fields(
    browser: Browser, node: str, message: str
) -> None:
    with watched_page(browser) as watched:
        watched.page.goto(f"{node}/ui/topics/orders/publish?copy={message}")
        fields = watched.page.locator("main input, main textarea")
        held = [fields.nth(at).input_value() for at in range(fields.count())]
        for each in (*LISTED, MESSAGE["sharding_key"], MESSAGE["text"]):
            assert each in held
        assert_nothing_came_alive(watched)


@pytest.mark.parametrize("path", REPEATED)
def test_what_an_address_says_is_shown_as_text(
    browser: Browser, node: str, message: str, path: str
) -> None:
    with watched_page(browser) as watched:
        watched.page.goto(f"{node}/ui/{path.format(quote(planted('address'), safe=''))}")
        watched.page.locator("h1").wait_for()
        assert_nothing_came_alive(watched)


@pytest.mark.parametrize("field", REFUSED)
def test_a_field_that_has_a_grammar_refuses_markup(node: str, message: str, field: str) -> None:
    method, path, headers, body = REFUSED[field]
    answer = httpx.request(method, node + path, headers=headers, json=body, timeout=60)
    assert answer.status_code in {400, 404, 422}, answer.text


def test_a_request_id_of_markup_is_replaced(node: str) -> None:
    """The audit shows those of changes."""
    given = planted("request")
    answer = httpx.put(f"{node}/v1/topics/other", headers={"MQ-Request-Id": given}, json={})
    assert answer.is_success
    assert "<" not in answer.headers["MQ-Request-Id"]


def test_markup_in_a_page_would_be_noticed(browser: Browser, node: str, message: str) -> None:
    with watched_page(browser) as watched:
        watched.page.goto(f"{node}/ui/topics/orders/messages/{message}")
        put = "text => document.querySelector('main').insertAdjacentHTML('beforeend', text)"
        watched.page.evaluate(put, planted("page"))
        with pytest.raises(AssertionError):
            assert_nothing_came_alive(watched)
