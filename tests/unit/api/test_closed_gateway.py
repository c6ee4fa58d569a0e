"""A closed node: without a key, everything but two questions is 401, whatever the path is.

Positive controls: a gateway that is not closed, and a path that is open though nobody said so, are
both seen by the test of all operations.
"""

import base64
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from app.api.access.credentials import Credentials
from app.api.app_factory import build_api
from app.api.control.operation_list import OPERATIONS
from app.api.gateway import Gateway
from app.api.http.request_context import Receive, Scope, Send
from app.api.ports import Metadata
from app.broker import Broker
from app.domain.access.evaluator import Principal
from app.domain.access.keyring import Keyring, KnownKey, PolicyAge
from app.domain.access.keys import KEY_ID_BYTES, KEY_SECRET_BYTES, digest_of, make_key
from app.domain.limits import Limits
from tests.support.clients.asgi import Answer, call
from tests.support.stores.clock import FakeClock

pytestmark = pytest.mark.anyio

KEY = make_key(bytes(KEY_ID_BYTES), bytes(KEY_SECRET_BYTES)).text.encode()
WITH_KEY = {b"host": b"queue.example.org", b"authorization": b"Bearer " + KEY}
OPEN = {"get_health", "get_readiness"}
PAGES = ["/docs", "/openapi.json", "/nothing", "/v1/", "/uix", "/UI/"]


class Source:
    def __init__(self, *, is_closed: bool) -> None:
        ann = Principal("ann", ("admin",))
        keys = {digest_of(KEY): KnownKey("ann", "1", None)}
        self.keyring = Keyring(is_closed, keys, 1, {"ann": ann})
        self.age = PolicyAge(lambda: 0.0)
        self.waiting: set[Callable[[], object]] = set()
        self.used_keys: set[str] = set()


async def page(_: Scope, __: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"page"})


def gateway(*, is_closed: bool = True) -> Gateway:
    return build_api(
        cast("Broker", SimpleNamespace(made_by_use=None)),
        cast("Metadata", None),
        Limits(),
        local_only=True,
        web=page,
        credentials=Credentials(Source(is_closed=is_closed), FakeClock()),
    )


def path_of(route: str) -> str:
    return route.replace("{", "").replace("}", "")


async def operations_without_a_key(asked: Gateway) -> set[str]:
    """Those that were refused for want of a key."""
    refused = set()
    for operation in OPERATIONS:
        answer = await call(asked, operation.method, path_of(operation.path))
        if is_refused(answer):
            refused.add(operation.operation_id)
    return refused


def is_refused(answer: Answer) -> bool:
    return answer.status == 401 and answer.headers[b"www-authenticate"] == b"Bearer"


async def test_every_operation_asks_for_a_key() -> None:
    refused = await operations_without_a_key(gateway())
    assert refused == {each.operation_id for each in OPERATIONS} - OPEN


async def test_who_is_not_let_in_has_stored_nothing_and_a_send_says_so() -> None:
    asked = gateway()
    for operation in OPERATIONS:
        if operation.operation_id not in OPEN and operation.method != "HEAD":
            answer = await call(asked, operation.method, path_of(operation.path))
            outcome = "not_stored" if operation.sends else None
            assert answer.json().get("outcome") == outcome, operation.operation_id
    wrong_method = await call(asked, "PATCH", "/v1/topics/orders/messages")
    assert (wrong_method.status, wrong_method.json().get("outcome")) == (401, None)


async def test_an_operation_that_is_open_by_mistake_is_noticed() -> None:
    asked = gateway()
    asked._admission._open_paths |= {"/v1/topics"}
    assert "list_topics" not in await operations_without_a_key(asked)


@pytest.mark.parametrize("path", ["/v1/limits", "/v1/error-codes", "/healthz", "/docs"])
async def test_an_open_node_asks_nobody(path: str) -> None:
    assert (await call(gateway(is_closed=False), "GET", path)).status == 200


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
async def test_pages_and_unknown_paths_ask_for_a_key(method: str, path: str) -> None:
    assert is_refused(await call(gateway(), method, path))


async def test_the_pages_ask_for_a_key_themselves() -> None:
    for path in ("/", "/ui", "/ui/", "/ui/static/a.css"):
        assert not is_refused(await call(gateway(), "GET", path))
    for path in ("/", "/ui"):
        assert is_refused(await call(gateway(), "POST", path))


@pytest.mark.parametrize("path", ["/healthz/", "/healthz/x", "//healthz", "/HEALTHZ"])
async def test_what_only_looks_like_an_open_path_asks_too(path: str) -> None:
    assert is_refused(await call(gateway(), "GET", path))


async def test_an_open_path_is_open_to_readers_only() -> None:
    assert (await call(gateway(), "GET", "/healthz")).status == 200
    assert is_refused(await call(gateway(), "POST", "/healthz"))


async def test_a_key_lets_in_under_any_name_of_the_host() -> None:
    answer = await call(gateway(), "GET", "/v1/limits", headers=WITH_KEY)
    assert answer.status == 200


async def test_two_keys_are_refused_also_when_one_is_right() -> None:
    twice = [(b"authorization", b"Bearer " + KEY), (b"authorization", b"Bearer wrong")]
    answer = await call(gateway(), "GET", "/v1/limits", headers=twice)
    assert (answer.status, answer.json()["code"]) == (400, "MALFORMED_REQUEST")


def typed_into_a_browser(**headers: bytes) -> dict[bytes, bytes]:
    """Basic credentials, which a browser keeps and shows."""
    basic = b"Basic " + base64.b64encode(b"any:" + KEY)
    more = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    return {b"host": b"queue.example.org", b"authorization": basic, **more}


@pytest.mark.parametrize(
    "origin", [b"http://other.example", b"null", b"http://queue.example.org:8710", b""]
)
async def test_credentials_that_a_browser_keeps_do_not_count_for_other_pages(origin: bytes) -> None:
    """Over plain HTTP to another machine it sends no `Sec-Fetch-Site`."""
    headers = typed_into_a_browser(origin=origin)
    for method in ("GET", "POST"):
        assert is_refused(await call(gateway(), method, "/v1/limits", headers=headers))


async def test_they_count_for_our_own_pages_and_for_programs() -> None:
    ours = typed_into_a_browser(origin=b"http://queue.example.org")
    proxied = typed_into_a_browser(
        origin=b"https://mq.example", x_forwarded_host=b"mq.example", host=b"127.0.0.1:8710"
    )
    for headers in (typed_into_a_browser(), ours, proxied):
        assert (await call(gateway(), "GET", "/v1/limits", headers=headers)).status == 200
    bearer = {**WITH_KEY, b"origin": b"http://other.example"}
    assert (await call(gateway(), "GET", "/v1/limits", headers=bearer)).status == 200


async def test_other_protocols_are_not_served() -> None:
    async def nothing() -> dict[str, str]:
        return {}

    async def send(_: object) -> None:
        raise AssertionError("nothing is answered")

    with pytest.raises(AssertionError, match="nobody asks here"):
        await gateway()({"type": "websocket", "path": "/ui"}, nothing, send)


async def test_a_header_that_is_wrong_is_told_of_only_to_who_has_a_key() -> None:
    wrong = {b"host": b"queue.example.org", b"mq-forward": b"perhaps"}
    answer = await call(gateway(), "DELETE", "/v1/receipts/x", headers=wrong)
    assert is_refused(answer)
