"""What holds for every request, whoever answers it."""

import logging
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from app.api.admission import Admission
from app.api.app_factory import build_api
from app.api.control.control_plane import build_control_plane
from app.api.control.dependencies import Services
from app.api.dataplane.router import Router
from app.api.dataplane.routes.lease_operations import STREAM_GROUP
from app.api.dataplane.routes.read_operations import PULL_MESSAGES
from app.api.dataplane.routes.send_operations import SEND_MESSAGE
from app.api.dataplane.routes.settle_operations import ACK_RECEIPT
from app.api.gateway import Gateway
from app.api.http.request_context import Receive, RequestContext, Scope, Send, batch_too_large
from app.api.telemetry.request_metrics import RequestMetrics
from app.domain.errors import ShuttingDown, TopicNotFound
from app.domain.limits import Limits
from tests.support.clients.asgi import LOCAL, call, events_of

pytestmark = pytest.mark.anyio

TOPIC = "/v1/topics/orders/messages"
PULL = "/v1/topics/orders/queues/0/messages"
RECEIPT = "/v1/receipts/abc"
STREAM = "/v1/topics/orders/groups/billing/stream"


async def send_handler(exchange: RequestContext, topic: str) -> None:
    body = await exchange.read_body(10, batch_too_large)
    if body == b"closing":
        raise ShuttingDown("bye")
    if body == b"broken":
        raise ZeroDivisionError
    if body == b"absent":
        raise TopicNotFound("no such topic")
    await exchange.answer(201, [], topic.encode() + b":" + body)


async def late_failure(exchange: RequestContext, *_: str) -> None:
    await exchange.answer(200, [], b"done")
    raise ZeroDivisionError


async def group_handler(exchange: RequestContext, *_: str) -> None:
    await exchange.answer(200, [], b"leased")


async def fallback(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"fallback"})


def shell(
    *, local_only: bool = True, access_log: bool = False, traffic: RequestMetrics | None = None
) -> Gateway:
    router = Router(
        {
            SEND_MESSAGE: send_handler,
            PULL_MESSAGES: late_failure,
            ACK_RECEIPT: send_handler,
            STREAM_GROUP: group_handler,
        }
    )
    return Gateway(
        router,
        fallback,
        Admission(header_block_bytes_max=256, local_only=local_only),
        traffic=traffic,
        access_log=access_log,
    )


async def test_every_answer_has_a_request_id_of_its_own() -> None:
    app = shell()
    answers = [
        await call(app, "POST", TOPIC, b"x"),
        await call(app, "POST", TOPIC, b"absent"),
        await call(app, "GET", "/v1/topics"),
    ]
    ids = [answer.headers[b"mq-request-id"] for answer in answers]
    assert len(set(ids)) == 3
    assert answers[1].json()["request_id"] == ids[1].decode()


@pytest.mark.parametrize("path", [TOPIC, "/v1/topics"])
async def test_a_sane_request_id_of_the_client_is_kept(path: str) -> None:
    answer = await call(shell(), "POST", path, headers={b"mq-request-id": b"trace/7.a"})
    assert answer.headers[b"mq-request-id"] == b"trace/7.a"


@pytest.mark.parametrize("request_id", [b"", b"a b", b"x" * 129, b"a\x00", b"\xff"])
async def test_another_one_is_replaced(request_id: bytes) -> None:
    answer = await call(shell(), "POST", TOPIC, headers={b"mq-request-id": request_id})
    assert answer.status == 201
    assert answer.headers[b"mq-request-id"] != request_id


@pytest.mark.parametrize("path", [TOPIC, "/v1/topics"])
async def test_a_large_header_block_is_refused(path: str) -> None:
    answer = await call(shell(), "POST", path, headers={b"x": b"y" * 256})
    assert answer.status == 431
    assert answer.json()["code"] == "REQUEST_HEADER_FIELDS_TOO_LARGE"
    assert answer.headers[b"mq-request-id"]


async def test_a_large_body_is_refused_before_it_is_read() -> None:
    receive = events_of(b"x" * 11)
    answer = await call(shell(), "POST", TOPIC, headers={b"content-length": b"11"}, receive=receive)
    assert answer.status == 413
    assert receive.taken == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("parts", [[b"x" * 11], [b"x" * 6, b"x" * 5, b"x"], [b"", b"x" * 11]])
async def test_a_large_body_without_a_length_is_refused_while_it_is_read(
    parts: list[bytes],
) -> None:
    assert (await call(shell(), "POST", TOPIC, *parts)).status == 413


async def test_reading_stops_at_the_limit() -> None:
    receive = events_of(*[b"x" * 6] * 100)
    assert (await call(shell(), "POST", TOPIC, receive=receive)).status == 413
    assert receive.taken == 2  # type: ignore[attr-defined]


async def test_a_body_in_parts_is_joined() -> None:
    assert (await call(shell(), "POST", TOPIC, b"ab", b"", b"c")).body == b"orders:abc"


@pytest.mark.parametrize("host", [b"localhost", b"LOCALHOST:1", b"127.0.0.1:8710", b"[::1]:8710"])
async def test_local_names_are_served(host: bytes) -> None:
    assert (await call(shell(), "POST", TOPIC, headers={b"host": host})).status == 201


@pytest.mark.parametrize(
    "host", [b"", b"evil.example", b"localhost.evil.example", b"127.0.0.1.nip.io:80", b"[::2]:1"]
)
@pytest.mark.parametrize("path", [TOPIC, "/v1/topics", "/ui"])
async def test_foreign_host_names_are_refused(host: bytes, path: str) -> None:
    answer = await call(shell(), "POST", path, headers={b"host": host})
    assert (answer.status, answer.json()["code"]) == (403, "FORBIDDEN")
    assert answer.json()["hint"]


@pytest.mark.parametrize("origin", [b"http://evil.example", b"null", b"http://localhost:3000"])
async def test_foreign_origins_are_refused(origin: bytes) -> None:
    answer = await call(shell(), "POST", TOPIC, headers=[LOCAL, (b"origin", origin)])
    assert answer.status == 403


async def test_our_own_pages_are_served() -> None:
    headers = [LOCAL, (b"origin", b"http://localhost:8710")]
    assert (await call(shell(), "POST", TOPIC, headers=headers)).status == 201


async def test_a_guarded_server_leaves_host_and_origin_to_its_guard() -> None:
    headers = {b"host": b"mq.example", b"origin": b"http://other.example"}
    assert (await call(shell(local_only=False), "POST", TOPIC, headers=headers)).status == 201


EVERYTHING = [
    ("POST", TOPIC),
    ("GET", PULL),
    ("DELETE", RECEIPT),
    ("GET", STREAM),
    ("GET", "/v1/topics"),
    ("GET", "/openapi.json"),
    ("GET", "/metrics"),
    ("HEAD", "/v1/topics/orders/queues/0"),
    ("OPTIONS", "/ui/"),
    ("POST", "/ui/"),
]


@pytest.mark.parametrize(("method", "path"), [*EVERYTHING, ("GET", "/ui/"), ("HEAD", "/docs")])
@pytest.mark.parametrize("site", [b"cross-site", b"same-site", b"", b"None", b"none, none"])
@pytest.mark.parametrize("local_only", [True, False])
async def test_what_another_page_made_a_browser_ask_is_refused(
    method: str, path: str, site: bytes, local_only: bool
) -> None:
    receive = events_of(b"x")
    headers = {b"sec-fetch-site": site, b"sec-fetch-mode": b"no-cors"}
    app = shell(local_only=local_only)
    answer = await call(app, method, path, headers=headers, receive=receive)
    assert (answer.status, answer.json()["code"]) == (403, "FORBIDDEN")
    assert "web page of another origin" in answer.json()["detail"]
    assert receive.taken == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("site", [b"none", b"same-origin"])
@pytest.mark.parametrize(("method", "path"), EVERYTHING)
async def test_what_we_or_people_ask_a_browser_is_served(
    method: str, path: str, site: bytes
) -> None:
    headers = {b"sec-fetch-site": site, b"sec-fetch-mode": b"cors"}
    assert (await call(shell(), method, path, headers=headers)).status in {200, 201}


def navigation(site: bytes, destination: bytes = b"document") -> dict[bytes, bytes]:
    return {
        b"sec-fetch-site": site,
        b"sec-fetch-mode": b"navigate",
        b"sec-fetch-dest": destination,
    }


@pytest.mark.parametrize("path", ["/", "/ui", "/ui/", "/docs"])
async def test_a_link_from_elsewhere_opens_the_pages(path: str) -> None:
    assert (await call(shell(), "GET", path, headers=navigation(b"cross-site"))).status == 200


@pytest.mark.parametrize(
    ("method", "path", "destination"),
    [
        *[(method, path, b"document") for method, path in EVERYTHING],
        ("GET", "/ui/", b"iframe"),
        ("GET", "/docs", b"object"),
        ("GET", "/docs/../v1/topics", b"document"),
        ("GET", "/uix", b"document"),
    ],
)
async def test_it_opens_nothing_else(method: str, path: str, destination: bytes) -> None:
    headers = navigation(b"cross-site", destination)
    assert (await call(shell(), method, path, headers=headers)).status == 403


async def test_an_address_bar_leases_nothing() -> None:
    """A page whose address was typed redirects here, and the browser calls it typed."""
    answer = await call(shell(), "GET", STREAM, headers=navigation(b"none"))
    assert (answer.status, answer.json()["code"]) == (403, "FORBIDDEN")
    assert (await call(shell(), "GET", "/v1/topics", headers=navigation(b"none"))).status == 200


@pytest.mark.parametrize(
    "name", [b"authorization", b"content-type", b"idempotency-key", b"origin", b"sec-fetch-site"]
)
async def test_a_header_that_could_be_read_in_two_ways_is_given_once(name: bytes) -> None:
    answer = await call(shell(), "POST", TOPIC, headers=[(name, b"none"), (name, b"none")])
    assert (answer.status, answer.json()["code"]) == (400, "MALFORMED_REQUEST")
    assert answer.json()["header"].lower() == name.decode()


async def test_other_headers_may_come_in_lines() -> None:
    lines = [(b"accept", b"a/b"), (b"accept", b"*/*"), (b"if-match", b'"1"'), (b"if-match", b"*")]
    assert (await call(shell(), "POST", TOPIC, headers=lines)).status == 201


@pytest.mark.parametrize(("method", "path"), [("DELETE", RECEIPT), ("GET", "/v1/topics")])
async def test_message_headers_are_refused_where_they_mean_nothing(method: str, path: str) -> None:
    answer = await call(shell(), method, path, headers={b"mq-tag": b"x"})
    assert (answer.status, answer.json()["code"]) == (400, "BAD_REQUEST")


async def test_other_applications_may_get_any_header() -> None:
    assert (await call(shell(), "GET", "/ui", headers={b"mq-tag": b"x"})).status == 200


async def test_a_failed_send_has_an_outcome_and_other_calls_have_none() -> None:
    assert (await call(shell(), "POST", TOPIC, b"absent")).json()["outcome"] == "not_stored"
    assert "outcome" not in (await call(shell(), "DELETE", RECEIPT, b"absent")).json()


async def test_the_unexpected_is_answered_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    answer = await call(shell(), "POST", TOPIC, b"broken")
    problem = answer.json()
    assert (answer.status, problem["code"]) == (500, "INTERNAL_SERVER_ERROR")
    assert problem["outcome"] == "unknown"
    assert "ZeroDivisionError" not in answer.body.decode()
    record = caplog.records[0]
    assert record.levelno == logging.ERROR
    assert problem["request_id"] in record.getMessage()
    assert record.exc_info


async def test_a_failure_after_the_answer_is_logged_only(caplog: pytest.LogCaptureFixture) -> None:
    answer = await call(shell(), "GET", PULL)
    assert (answer.status, answer.body) == (200, b"done")
    assert len(caplog.records) == 1


async def test_shutting_down_closes_the_connection_and_says_when_to_retry() -> None:
    answer = await call(shell(), "POST", TOPIC, b"closing")
    assert answer.status == 503
    assert answer.headers[b"retry-after"] == b"1"
    assert answer.headers[b"connection"] == b"close"
    assert answer.json()["retryable"] is True


async def test_nobody_is_answered_who_left_while_sending() -> None:
    async def gone() -> dict[str, str]:
        return {"type": "http.disconnect"}

    assert (await call(shell(), "POST", TOPIC, receive=gone)).status == 0


async def test_another_protocol_falls_through() -> None:
    seen: list[str] = []

    async def lifespan(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    app = Gateway(Router({}), lifespan, Admission(header_block_bytes_max=1, local_only=True))
    await app({"type": "lifespan"}, events_of(), events_of())  # type: ignore[arg-type]
    assert seen == ["lifespan"]


async def test_the_access_log_has_one_line_that_nobody_can_forge(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "app.api.telemetry.access_log")
    app = shell(access_log=True)
    await call(app, "POST", TOPIC, b"absent", query=b"tag=secret")
    await call(app, "GET", '/v1/\n{"status":200}')
    sent, forged = [msgspec.json.decode(record.getMessage()) for record in caplog.records]
    assert sent.pop("duration_ms") >= 0
    assert sent.pop("request_id")
    assert sent == {
        "client": "127.0.0.1",
        "method": "POST",
        "path": TOPIC,
        "operation": "send_message",
        "status": 404,
    }
    assert forged["operation"] == "other"
    assert all("\n" not in record.getMessage() for record in caplog.records)
    assert "secret" not in caplog.text


async def test_there_is_no_access_log_unless_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await call(shell(), "POST", TOPIC, b"x")
    assert not caplog.records


async def test_a_client_that_left_is_counted_as_such() -> None:
    async def gone() -> dict[str, str]:
        return {"type": "http.disconnect"}

    traffic = RequestMetrics()
    await call(shell(traffic=traffic), "POST", TOPIC, receive=gone)
    assert traffic.operations["send_message"].statuses == {499: 1}


async def test_a_client_that_left_the_control_plane_is_counted_as_such() -> None:
    async def gone() -> dict[str, str]:
        return {"type": "http.disconnect"}

    traffic = RequestMetrics()
    services = Services(cast("Any", None), cast("Any", None), Limits(), traffic=traffic)
    app = Gateway(
        Router({}),
        build_control_plane(services),
        Admission(header_block_bytes_max=9_999, local_only=True),
        traffic=traffic,
    )
    await call(app, "PUT", "/v1/topics/orders", receive=gone)
    assert traffic.operations["other"].statuses == {499: 1}


@pytest.mark.parametrize(
    ("trusted", "expected"),
    [
        ((), ("127.0.0.1", "http")),
        (("10.0.0.1",), ("127.0.0.1", "http")),
        (("127.0.0.1",), ("203.0.113.7", "https")),
        (("127.0.0.0/8",), ("203.0.113.7", "https")),
    ],
)
async def test_only_proxies_that_are_named_say_who_asks(
    trusted: tuple[str, ...], expected: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    seen: list[tuple[str, str]] = []

    async def note(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append((scope["client"][0], scope["scheme"]))
        await fallback(scope, receive, send)

    app = build_api(
        SimpleNamespace(made_by_use=None),  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        Limits(),
        local_only=True,
        trusted_proxies=trusted,
    )
    app._fallback = note
    forwarded = {b"x-forwarded-for": b"203.0.113.7", b"x-forwarded-proto": b"https"}
    await call(app, "GET", "/v1/topics", headers=forwarded)
    assert seen == [expected]
