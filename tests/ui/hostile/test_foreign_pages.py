"""A page of somebody else, in a real browser, and a node on the same machine: nothing happens."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest
from playwright.sync_api import Browser
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.support.clients.browser import watched_page
from tests.support.clients.serving import served
from tests.support.nodes.node import RunningNode, run_node
from tests.support.nodes.waiting import wait_until

pytestmark = pytest.mark.browser

STREAM: Final = "/v1/topics/orders/groups/{group}/stream?invisible=12h"
TRY: Final = """
({url, node}) => {
    const named = name => url.replace('{group}', name);
    const add = (tag, members) =>
        document.body.append(Object.assign(document.createElement(tag), members));
    add('img', {src: named('img')});
    add('script', {src: named('script')});
    add('video', {src: named('video')});
    add('object', {data: named('object')});
    add('iframe', {src: named('iframe')});
    add('link', {rel: 'stylesheet', href: named('stylesheet')});
    add('link', {rel: 'prefetch', href: named('prefetch')});
    new EventSource(named('eventsource'));
    fetch(named('fetch'), {mode: 'no-cors'}).catch(() => 0);
    navigator.sendBeacon(`${node}/v1/topics/orders/messages?tag=beacon`, 'x');
    try { new WebSocket(named('websocket').replace('http', 'ws')); } catch { }
    const receive = named('form').replace('/stream', '/messages:receive');
    add('iframe', {name: 'target'});
    const form = Object.assign(document.createElement('form'),
        {action: receive, method: 'POST', target: 'target', enctype: 'text/plain'});
    document.body.append(form);
    form.submit();
}
"""
WAYS: Final = (
    *("img", "script", "video", "object", "iframe", "stylesheet", "prefetch"),
    *("eventsource", "fetch", "websocket", "form"),
)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with run_node(tmp_path / "data", "--access-log") as running:
        httpx.post(f"{running.url}/v1/topics/orders/messages", content=b"secret", timeout=60)
        yield running


def requests_of(node: RunningNode) -> list[dict[str, str | int]]:
    """What the node was asked, by its access log."""
    lines = node.log.read_text().splitlines()
    return [
        json.loads(line[line.index("{") :])
        for line in lines
        if "app.api.telemetry.access_log" in line
    ]


def asked_for(node: RunningNode, name: str) -> list[str | int]:
    """The statuses of what the way `name` has asked."""
    return [each["status"] for each in requests_of(node) if f"/groups/{name}/" in str(each["path"])]


def groups_of(node: RunningNode) -> list[str]:
    answer = httpx.get(f"{node.url}/v1/groups", timeout=60).json()
    return [group["name"] for group in answer["groups"]]


async def _page(_: Request) -> Response:
    return HTMLResponse("<!doctype html><title>A page of somebody else</title><body>")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"], ids=["cross-site", "same-site"])
def test_a_page_of_another_origin_makes_no_group(
    browser: Browser, node: RunningNode, host: str
) -> None:
    with served(Starlette(routes=[Route("/", _page)])) as origin, watched_page(browser) as watched:
        page = watched.page
        page.goto(origin.replace("127.0.0.1", host))
        page.evaluate(TRY, {"url": f"{node.url}{STREAM}", "node": node.url})
        # That each way has reached the node is what makes the rest of this test say anything.
        wait_until(lambda: all(asked_for(node, way) for way in WAYS))
        sent = "/v1/topics/orders/messages"
        wait_until(lambda: sum(each["path"] == sent for each in requests_of(node)) == 2)
    assert {status for way in WAYS for status in asked_for(node, way)} == {403}
    assert groups_of(node) == []
    stats = httpx.get(f"{node.url}/v1/topics/orders/stats", timeout=60).json()
    assert stats["depth"] == 1


def test_a_typed_address_that_is_redirected_leases_nothing(
    browser: Browser, node: RunningNode
) -> None:
    async def redirect(_: Request) -> Response:
        return RedirectResponse(f"{node.url}{STREAM.format(group='redirect')}")

    routes = [Route("/", redirect)]
    with served(Starlette(routes=routes)) as origin, watched_page(browser) as watched:
        answer = watched.page.goto(origin)
        assert answer is not None
        assert answer.status == 403
    assert asked_for(node, "redirect") == [403]
    assert groups_of(node) == []


def test_a_link_opens_the_pages_and_nothing_else(browser: Browser, node: RunningNode) -> None:
    async def links(_: Request) -> Response:
        paths = ("/ui/", "/docs", "/v1/topics", "/openapi.json")
        return HTMLResponse("".join(f'<a href="{node.url}{path}">{path}</a> ' for path in paths))

    expected = {"/ui/": 200, "/docs": 200, "/v1/topics": 403, "/openapi.json": 403}
    with served(Starlette(routes=[Route("/", links)])) as origin, watched_page(browser) as watched:
        page = watched.page
        for path, status in expected.items():
            page.goto(origin.replace("127.0.0.1", "localhost"))
            with page.expect_response(f"{node.url}{path}") as answer:
                page.get_by_text(path, exact=True).click()
            assert (path, answer.value.status) == (path, status)


def test_our_own_page_is_served(browser: Browser, node: RunningNode) -> None:
    with watched_page(browser) as watched:
        page = watched.page
        page.goto(f"{node.url}/ui/")
        asked = "fetch('/v1/topics').then(answer => answer.status)"
        assert page.evaluate(asked) == 200
        page.evaluate("url => { new EventSource(url); }", STREAM.format(group="ours"))
        wait_until(lambda: groups_of(node) == ["ours"])
