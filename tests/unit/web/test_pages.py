"""The pages over ASGI before a node in memory, without a socket: who may read them, addresses,
headers, forms."""

import asyncio
import html
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urljoin

import httpx
import pytest

from app.api.http.request_context import Receive, Scope, Send
from app.web import LiveStreams, build_web
from app.web.serving.api import Answer, Api
from app.web.serving.headers import CONTENT_SECURITY_POLICY
from app.web.serving.sessions import COOKIE, COOKIE_UNDER_TLS
from tests.support.nodes.closed import ClosedNode, closed_node, key_of
from tests.support.stores.clock import FakeClock

BASE: Final = "http://localhost:8710"
FROM_ELSEWHERE: Final = (("site", "cross-site"), ("mode", "navigate"), ("dest", "document"))
"""What a browser says of a link on a page of somebody else."""
Use = Callable[[httpx.AsyncClient, ClosedNode], Awaitable[None]]


def with_pages(use: Use, *, is_closed: bool = False, mounted: str = "") -> None:
    """Runs `use` with a client of a node; a proxy has `mounted` before what it asks."""

    async def run() -> None:
        async with closed_node(is_closed=is_closed, with_pages=True) as node:
            transport = httpx.ASGITransport(node.app)
            async with httpx.AsyncClient(transport=transport, base_url=BASE + mounted) as client:
                await use(client, node)

    asyncio.run(run())


def links(text: str) -> list[str]:
    return re.findall(r'(?:href|src|action)="([^"]*)"', text)


async def sign_in(client: httpx.AsyncClient, who: str, **fields: str) -> httpx.Response:
    return await client.post("/ui/sign-in", data={"key": key_of(who).decode(), **fields})


@pytest.mark.parametrize("path", ["/ui/", "/ui/missing", "/ui/static/curlew.000000000000.css"])
def test_every_answer_carries_the_security_headers(path: str) -> None:
    async def use(client: httpx.AsyncClient, _: ClosedNode) -> None:
        headers = (await client.get(path)).headers
        assert headers["content-security-policy"] == CONTENT_SECURITY_POLICY
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"

    with_pages(use)


def test_a_missing_page_is_a_page() -> None:
    async def use(client: httpx.AsyncClient, _: ClosedNode) -> None:
        answer = await client.get("/ui/missing")
        assert answer.status_code == 404
        assert "There is no such thing here" in answer.text

    with_pages(use)


def test_static_files_are_named_by_content_and_kept() -> None:
    async def use(client: httpx.AsyncClient, _: ClosedNode) -> None:
        found = re.findall(r'href="\./(static/curlew[^"]+css)"', (await client.get("/ui/")).text)
        answer = await client.get(f"/ui/{found[0]}")
        assert answer.headers["content-type"] == "text/css; charset=utf-8"
        assert answer.headers["cache-control"] == "private, max-age=31536000, immutable"
        assert b"light-dark(" in answer.content

    with_pages(use)


@pytest.mark.parametrize("page", ["/ui/", "/ui/topics", "/ui/in/staging/missing", "/ui/no/page"])
def test_no_address_is_absolute_so_that_a_proxy_may_add_a_prefix(page: str) -> None:
    async def use(client: httpx.AsyncClient, _: ClosedNode) -> None:
        found = links((await client.get(page)).text)
        assert len(found) > 8
        assert [link for link in found if not link.startswith((".", "#", "?"))] == []
        resolved = [urljoin(f"{BASE}/mq{page}", link) for link in found]
        assert [link for link in resolved if not link.startswith(f"{BASE}/mq/")] == []
        style = next(link for link in resolved if "curlew." in link and link.endswith("css"))
        assert (await client.get(style.replace("/mq/", "/"))).status_code == 200

    with_pages(use)


def test_redirects_to_the_pages_are_relative_too() -> None:
    async def use(client: httpx.AsyncClient, _: ClosedNode) -> None:
        for path in ("/", "/ui"):
            answer = await client.get(path, headers={"Accept": "text/html"})
            assert answer.headers["location"] == "./ui/"

    with_pages(use, is_closed=True)


def test_a_query_is_text() -> None:
    async def use(client: httpx.AsyncClient, _: ClosedNode) -> None:
        text = (await client.get('/ui/topics?prefix="><script>alert(1)</script>')).text
        assert "<script>alert" not in text
        assert "&#34;&gt;&lt;script&gt;" in text

    with_pages(use)


def test_a_stranger_is_led_to_the_sign_in_and_back() -> None:
    async def use(client: httpx.AsyncClient, _: ClosedNode) -> None:
        answer = await client.get("/ui/topics?prefix=al")
        assert answer.status_code == 303
        assert answer.headers["location"] == "./sign-in?next=topics%3Fprefix%3Dal"
        assert "alpha-in" not in answer.text
        form = await client.get("/ui/sign-in?next=topics%3Fprefix%3Dal")
        assert 'name="next" value="topics?prefix=al"' in form.text
        answer = await sign_in(client, "viewer", next="topics?prefix=al")
        assert (answer.status_code, answer.headers["location"]) == (303, "./topics?prefix=al")
        cookie = answer.headers["set-cookie"]
        assert "httponly" in cookie.lower()
        assert cookie.startswith(f"{COOKIE}=")
        assert "samesite=strict" in cookie.lower()
        assert "path=" not in cookie.lower()
        page = await client.get("/ui/topics?prefix=al")
        assert "alpha-in" in page.text
        assert "viewer" in page.text

    with_pages(use, is_closed=True)


def test_under_tls_the_cookie_is_for_tls_only() -> None:
    async def use(client: httpx.AsyncClient, _: ClosedNode) -> None:
        key = key_of("viewer").decode()
        plain = await client.post("/ui/sign-in", data={"key": key})
        assert "secure" not in plain.headers["set-cookie"].lower()
        through_proxy = await client.post(
            "/ui/sign-in", data={"key": key}, headers={"Origin": "https://localhost:8710"}
        )
        cookie = through_proxy.headers["set-cookie"]
        assert cookie.startswith(f"{COOKIE_UNDER_TLS}=")
        said = {each.strip().lower() for each in cookie.split(";")[1:]}
        assert said == {"secure", "httponly", "path=/", "samesite=strict"}  # and no domain

    with_pages(use, is_closed=True)


def test_under_tls_a_cookie_that_could_have_been_planted_is_none() -> None:
    async def use(client: httpx.AsyncClient, _: ClosedNode) -> None:
        tls = f"https://{BASE.partition('//')[2]}"
        await sign_in(client, "viewer")
        name = client.cookies[COOKIE]
        client.cookies.clear()
        assert (await client.get("/ui/topics", headers=_cookie(COOKIE, name))).status_code == 200
        planted = await client.get(f"{tls}/ui/topics", headers=_cookie(COOKIE, name))
        assert planted.status_code == 303
        own = await client.get(f"{tls}/ui/topics", headers=_cookie(COOKIE_UNDER_TLS, name))
        assert own.status_code == 200
        # A proxy that has the TLS and is not known as one: the better of two counts.
        both = {"cookie": f"{COOKIE}=planted; {COOKIE_UNDER_TLS}={name}"}
        assert (await client.get("/ui/topics", headers=both)).status_code == 200
        out = await client.post(f"{tls}/ui/sign-out", headers=_cookie(COOKIE_UNDER_TLS, name))
        assert f'{COOKIE_UNDER_TLS}=""' in str(out.headers.get_list("set-cookie"))
        gone = await client.get(f"{tls}/ui/topics", headers=_cookie(COOKIE_UNDER_TLS, name))
        assert gone.status_code == 303

    with_pages(use, is_closed=True)


def _cookie(name: str, value: str) -> dict[str, str]:
    return {"cookie": f"{name}={value}"}


def test_a_link_from_elsewhere_comes_to_its_page_without_another_sign_in() -> None:
    async def use(client: httpx.AsyncClient, _: ClosedNode) -> None:
        elsewhere = {f"sec-fetch-{name}": value for name, value in FROM_ELSEWHERE}
        answer = await client.get("/ui/topics?prefix=al&page_size=5", headers=elsewhere)
        assert answer.status_code == 200
        assert "alpha-in" not in answer.text
        [way] = re.findall('content="0;url=([^"]*)"', answer.text)
        await sign_in(client, "viewer")
        form = await client.get(urljoin(f"{BASE}/ui/topics", html.unescape(way)))
        assert form.status_code == 303
        back = urljoin(str(form.url), form.headers["location"])
        assert back == f"{BASE}/ui/topics?prefix=al&page_size=5"
        assert "alpha-in" in (await client.get(back)).text
        # Who has no session gives a key there, and who signs in anew is asked for one.
        assert (await client.get("/ui/sign-in")).status_code == 200
        client.cookies.clear()
        assert (await client.get("/ui/sign-in?next=topics")).status_code == 200

    with_pages(use, is_closed=True)


@pytest.mark.parametrize(
    "way_back", ["//evil.example", "https://evil.example", "/\\evil", "\nx", "javascript:1//"]
)
def test_the_way_back_stays_on_this_node(way_back: str) -> None:
    async def use(client: httpx.AsyncClient, _: ClosedNode) -> None:
        answer = await sign_in(client, "viewer", next=way_back)
        assert urljoin(f"{BASE}/ui/sign-in", answer.headers["location"]).startswith(f"{BASE}/ui/")

    with_pages(use, is_closed=True)


def test_a_wrong_key_is_refused_and_audited() -> None:
    async def use(client: httpx.AsyncClient, node: ClosedNode) -> None:
        answer = await client.post("/ui/sign-in", data={"key": "nonsense"})
        assert answer.status_code == 401
        assert "is not an API key" in answer.text
        assert COOKIE not in client.cookies
        assert node.access.denials

    with_pages(use, is_closed=True)


def test_a_session_ends_with_its_key_and_with_its_sign_out() -> None:
    async def use(client: httpx.AsyncClient, node: ClosedNode) -> None:
        await sign_in(client, "viewer")
        assert (await client.get("/ui/topics")).status_code == 200
        kept = dict(client.cookies)
        await client.post("/ui/sign-out")
        client.cookies.update(kept)
        assert (await client.get("/ui/topics")).status_code == 303
        client.cookies.clear()
        await sign_in(client, "viewer")
        node.access.show([])
        answer = await client.get("/ui/topics")
        assert answer.headers["location"] == "./sign-in?next=topics&why=ended"
        assert (await client.get("/ui/topics", headers=STREAM)).status_code == 401

    with_pages(use, is_closed=True)


STREAM: Final = {"Accept": "text/event-stream"}


def test_the_json_behind_a_page_is_for_who_is_signed_in() -> None:
    async def use(client: httpx.AsyncClient, _: ClosedNode) -> None:
        where = "/ui/api/v1/topics?page_size=1"
        assert (await client.get(where)).status_code == 303
        await sign_in(client, "viewer")
        assert './api/v1/topics?page_size=50"' in (await client.get("/ui/topics")).text
        answer = await client.get(where)
        assert [each["name"] for each in answer.json()["topics"]] == ["alpha-in"]
        assert answer.headers["content-type"] == "application/json"

    with_pages(use, is_closed=True)


def test_nothing_but_json_comes_from_behind_a_page() -> None:
    async def use(client: httpx.AsyncClient, _: ClosedNode) -> None:
        answer = await client.get("/ui/api/v1/../metrics")
        assert answer.status_code in {404, 406}
        assert "curlew_" not in answer.text

    with_pages(use)


FOREIGN: Final = [
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://localhost:8711"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site", "Origin": BASE},
]


@pytest.mark.parametrize("headers", FOREIGN)
def test_a_form_of_another_origin_does_nothing(headers: dict[str, str]) -> None:
    async def use(client: httpx.AsyncClient, _: ClosedNode) -> None:
        key = {"key": key_of("viewer").decode()}
        answer = await client.post("/ui/sign-in", data=key, headers=headers)
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers

    with_pages(use, is_closed=True)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": BASE},
        {"Sec-Fetch-Site": "same-origin", "Origin": "https://mq.example"},
        {"Origin": "https://mq.example", "X-Forwarded-Host": "mq.example"},
        {},
    ],
)
def test_a_form_of_ours_is_taken_behind_a_proxy_too(headers: dict[str, str]) -> None:
    async def use(client: httpx.AsyncClient, _: ClosedNode) -> None:
        key = {"key": key_of("viewer").decode()}
        answer = await client.post("/ui/sign-in", data=key, headers=headers)
        assert answer.status_code == 303

    with_pages(use, is_closed=True)


def test_a_form_that_is_too_long_or_no_text_is_refused() -> None:
    async def use(client: httpx.AsyncClient, _: ClosedNode) -> None:
        long = await client.post("/ui/sign-in", content=b"key=" + b"x" * 9_000_000)
        assert long.status_code == 413
        assert (await client.post("/ui/sign-in", content=b"key=%ff")).status_code == 400

    with_pages(use)


def test_a_stranger_keeps_the_node_from_nothing_with_a_form() -> None:
    async def use(client: httpx.AsyncClient, _: ClosedNode) -> None:
        many = await client.post("/ui/sign-in", content=b"a&" * 2_000)
        assert (many.status_code, "too many fields" in many.text) == (400, True)
        assert (await client.post("/ui/sign-in", content=b"x" * 65_537)).status_code == 413
        for key in ("", "\N{SNOWMAN}", "x" * 600):
            answer = await client.post("/ui/sign-in", data={"key": key})
            assert (answer.status_code, "Give an API key." in answer.text) == (422, True)

    with_pages(use, is_closed=True)


def test_a_stream_ends_with_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = asyncio.Event()

    async def at_once(*_: object) -> None:
        looked.set()
        await asyncio.sleep(0)

    async def use(client: httpx.AsyncClient, _: ClosedNode) -> None:
        await sign_in(client, "alpha")
        stream = asyncio.ensure_future(client.get("/ui/topics/alpha-in", headers=STREAM))
        await looked.wait()
        assert not stream.done()
        await client.post("/ui/sign-out")
        async with asyncio.timeout(10):
            assert "event: looked" in (await stream).text

    monkeypatch.setattr(LiveStreams, "_pause", at_once)
    with_pages(use, is_closed=True)


def test_signing_in_anew_ends_the_session_before() -> None:
    async def use(client: httpx.AsyncClient, _: ClosedNode) -> None:
        await sign_in(client, "admin")
        before = client.cookies[COOKIE]
        await sign_in(client, "viewer")
        client.cookies.clear()
        client.cookies.set(COOKIE, before)
        assert (await client.get("/ui/topics")).status_code == 303

    with_pages(use, is_closed=True)


@pytest.mark.parametrize("body", ['{"a":1e400}', "9" * 5_000, "[" * 1_500 + "]" * 1_500])
def test_a_body_that_is_unusual_json_ends_no_page(body: str) -> None:
    async def use(client: httpx.AsyncClient, _: ClosedNode) -> None:
        topic = "/v1/topics/alpha-in/messages"
        json = {"Content-Type": "application/json", "MQ-Keys": "k1"}
        assert (await client.post(topic, content=body, headers=json)).status_code == 201
        for path in ("", "/messages", "/messages?queue=0&offset=0"):
            assert (await client.get(f"/ui/topics/alpha-in{path}")).status_code == 200
        for path in ("topics/alpha-in/messages", "topics/alpha-in/tail", "search?q=k1"):
            assert body[:50] in html.unescape((await client.get(f"/ui/{path}")).text)

    with_pages(use)


def test_lines_and_links_of_a_page_name_its_namespace() -> None:
    async def api(_: Scope, __: Receive, send: Send) -> None:
        body = b'{"principal":null,"topics":[],"next_page_token":null}'
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    async def run() -> str:
        transport = httpx.ASGITransport(build_web(api, FakeClock()))
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
            return (await client.get("/in/a'b/topics")).text

    text = html.unescape(asyncio.run(run()))
    assert "curl -H 'MQ-Namespace: a'\"'\"'b' http://localhost:8710/v1/topics" in text
    assert "/v1/topics?page_size=50&namespace=a%27b" in text


def test_pages_of_a_namespace_ask_within_it() -> None:
    async def use(client: httpx.AsyncClient, _: ClosedNode) -> None:
        answer = await client.get("/ui/in/nowhere/topics")
        assert answer.status_code == 404
        assert "nowhere" in answer.text
        assert (await client.get("/ui/in/no%2Fwhere")).status_code == 404
        bare = await client.get("/ui/in/nowhere")
        assert bare.headers["location"] == "./nowhere/"

    with_pages(use)


def test_a_page_that_fails_says_so_and_logs_why(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("the reason")

    async def run() -> httpx.Response:
        transport = httpx.ASGITransport(build_web(broken, FakeClock()))
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
            return await client.get("/topics")

    answer = asyncio.run(run())
    assert answer.status_code == 500
    assert "the reason" not in answer.text
    assert "the reason" in caplog.text


def test_settings_are_changed_after_it_was_shown_what_would() -> None:
    async def use(client: httpx.AsyncClient, _: ClosedNode) -> None:
        where, form = "/ui/groups/alpha-g/settings", {"max_attempts": "5", "max_span": ""}
        was = (await client.get("/v1/groups/alpha-g")).json()
        form["version"] = str(was["version"])
        shown = await client.post(where, data=form)
        assert "What would change" in shown.text
        assert (await client.get("/v1/groups/alpha-g")).json() == was
        done = await client.post(where, data={**form, "confirmed": "yes"})
        assert done.status_code == 303
        assert (await client.get("/v1/groups/alpha-g")).json()["max_attempts"] == 5
        await client.post(where, data={**form, "confirmed": "yes"})  # sent twice
        late = await client.post(where, data={**form, "max_attempts": "7", "confirmed": "yes"})
        assert late.status_code == 400
        assert 'value="7"' in late.text
        after = (await client.get("/v1/groups/alpha-g")).json()
        assert after["max_attempts"] == 5
        form["version"] = str(after["version"])
        wrong = await client.post(where, data={**form, "max_attempts": "many"})
        assert (wrong.status_code, 'role="alert"' in wrong.text) == (400, True)
        topic = (await client.get("/v1/topics/alpha-in")).json()
        form = {"queues": "8", "version": str(topic["version"])}
        shown = await client.post("/ui/topics/alpha-in/settings", data=form)
        assert "QUEUES_GROW_FOR_EVER" in shown.text

    with_pages(use)


def test_a_parked_message_that_is_gone_is_not_released_again() -> None:
    async def use(client: httpx.AsyncClient, _: ClosedNode) -> None:
        form = {"topic": "alpha-in", "queue_id": "0", "queue_offset": "0", "action": "retry"}
        answer = await client.post("/ui/groups/alpha-g/parked", data=form)
        assert answer.status_code in {404, 409}
        assert (await client.post("/ui/groups/alpha-g/parked")).status_code in {400, 422}

    with_pages(use)


def test_where_a_cluster_has_shards_the_list_of_groups_asks_for_the_lag_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    ask = Api.ask

    async def noted(api: Api, method: str, where: str, **more: Any) -> Answer:
        asked.append(where)
        if where == "/v1/nodes":
            return Answer(200, {}, b'{"nodes":[{"shard":"a"},{"shard":"b"}]}')
        return await ask(api, method, where, **more)

    async def use(client: httpx.AsyncClient, _: ClosedNode) -> None:
        monkeypatch.setattr(Api, "ask", noted)
        assert (await client.get("/ui/groups")).status_code == 200
        assert "/v1/groups/alpha-g/lag" in asked

    with_pages(use)


def test_the_nodes_page_shows_shards_and_what_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    places = {"leader": None, "leader_url": None}
    shard = {"name": "east", "epoch": 7, "queues": 12, "takes": "keyed", **places}
    event = {"seq": 2, "at_ms": 0, "shard": "east", "node_id": "n-1", "epoch": 6, "detail": "<b>"}
    answers = {
        "/v1/cluster": {"nodes": [], "shards": [{**shard, "answers": False}]},
        "/v1/cluster/events?page_size=20": {
            "events": [{**event, "kind": "node_fenced"}, {**event, "kind": "of_tomorrow"}],
        },
    }
    ask = Api.ask

    async def answered(api: Api, method: str, where: str, **more: Any) -> Answer:
        if where in answers:
            return Answer(200, {}, json.dumps(answers[where]).encode())
        return await ask(api, method, where, **more)

    async def use(client: httpx.AsyncClient, _: ClosedNode) -> None:
        monkeypatch.setattr(Api, "ask", answered)
        text = (await client.get("/ui/nodes")).text
        for said in ("east", "nobody", "does not answer", "takes no writes any more"):
            assert said in text
        assert "of_tomorrow" in text, "a kind that a newer node writes"
        assert "&lt;b&gt;" in text
        assert "<b>" not in text

    with_pages(use)


def test_a_form_to_send_is_for_who_may_send() -> None:
    async def use(client: httpx.AsyncClient, _: ClosedNode) -> None:
        where = "/ui/topics/alpha-in/publish"
        await sign_in(client, "viewer")
        assert "You may not publish to this topic." in (await client.get(where)).text
        await sign_in(client, "alpha")
        text = (await client.get(where)).text
        assert "You may not publish" not in text
        assert 'name="token"' in text

    with_pages(use, is_closed=True)


def test_a_page_that_leaves_groups_out_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(client: httpx.AsyncClient, _: ClosedNode) -> None:
        where = "/v1/topics/alpha-in/messages"
        sent = (await client.post(where, content=b"x")).json()
        one = f"/ui/topics/alpha-in/messages/{sent['message_id']}"
        pages = ["/ui/topics/alpha-in/groups", one]
        for number in range(3):
            for path in pages:
                text = (await client.get(path)).text
                assert ("There may be more groups" in text) == (number > 1)
            await client.post(f"/v1/topics/alpha-in/groups/alpha-{number}/messages:receive")

    monkeypatch.setattr("app.web.messaging.topics.GROUPS_SHOWN_MAX", 1)
    with_pages(use)


@pytest.mark.parametrize(
    "path",
    [
        *("topics", "groups", "delayed", "delayed/alpha-in", "schedules", "transactions"),
        *("principals", "policies", "groups/alpha-g/clients", "clients?group=alpha-g"),
    ],
)
def test_a_place_behind_the_end_of_a_list_is_not_said_to_be_an_empty_list(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    kinds = "topics groups lag dead_letters messages schedules transactions principals policies"
    nothing: dict[str, Any] = {kind: [] for kind in [*kinds.split(), "clients", "roles"]}
    body = json.dumps({**nothing, "scanned": 0, "next_page_token": None}).encode()
    ask = Api.ask

    async def none_left(api: Api, method: str, where: str, **more: Any) -> Answer:
        is_asked = "page_token=last" in where or where == "/v1/roles"
        return Answer(200, {}, body) if is_asked else await ask(api, method, where, **more)

    async def use(client: httpx.AsyncClient, _: ClosedNode) -> None:
        monkeypatch.setattr(Api, "ask", none_left)
        text = (await client.get(f"/ui/{path}{'&' if '?' in path else '?'}page_token=last")).text
        assert "nothing behind the place" in text
        assert 'class="command"' not in text.partition("<main")[2].partition("First page")[0]

    with_pages(use)


@pytest.mark.parametrize("name", ["queue", "offset"])
def test_a_field_for_a_number_that_has_none_is_not_passed_over(name: str) -> None:
    async def use(client: httpx.AsyncClient, _: ClosedNode) -> None:
        answer = await client.get(f"/ui/topics/alpha-in/messages?{name}=many")
        assert answer.status_code == 422
        assert "This is no whole number: many" in answer.text

    with_pages(use)
