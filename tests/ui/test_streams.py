"""A browser's own EventSource follows a real node: messages, reconnects, endings."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page

from tests.support.clients.browser import watched_page
from tests.support.nodes.node import RunningNode, run_node, start_node

pytestmark = pytest.mark.browser

FOLLOW = """
url => {
    window.seen = []; window.ends = []; window.opened = 0; window.ids = [];
    const source = window.source = new EventSource(url);
    source.onopen = () => window.opened++;
    source.onmessage = event => {
        window.seen.push(JSON.parse(event.data).text);
        window.ids.push(event.lastEventId);
    };
    source.addEventListener('end', event => window.ends.push(JSON.parse(event.data).reason));
}
"""
TOPIC = "/v1/topics/orders"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with run_node(tmp_path / "data") as running:
        yield running


def send(node: RunningNode, *bodies: str) -> None:
    with httpx.Client(base_url=node.url, timeout=60) as client:
        for body in bodies:
            client.post(f"{TOPIC}/messages", content=body).raise_for_status()


def open_page(page: Page, node: RunningNode) -> None:
    page.goto(f"{node.url}/healthz")  # any page of the node's origin


def test_messages_arrive_as_they_are_sent(browser: Browser, node: RunningNode) -> None:
    send(node, "before")
    with watched_page(browser) as watched:
        page = watched.page
        open_page(page, node)
        page.evaluate(FOLLOW, f"{TOPIC}/stream?at=earliest")
        page.wait_for_function("seen.length == 1")
        send(node, "line\nbreaks\r\nand é € 😀", "\u2028")
        page.wait_for_function("seen.length == 3")
        assert page.evaluate("seen") == ["before", "line\nbreaks\r\nand é € 😀", "\u2028"]
        page.evaluate("source.close()")


def test_it_connects_again_by_itself_and_misses_nothing(browser: Browser, tmp_path: Path) -> None:
    """The node is stopped and started under the open page, and killed once more."""
    node = start_node(tmp_path / "data")
    port = str(node.port)
    with watched_page(browser) as watched:
        page = watched.page
        try:
            send(node, "1")
            open_page(page, node)
            page.evaluate(FOLLOW, f"{TOPIC}/stream?at=earliest")
            page.wait_for_function("seen.length == 1")
            assert node.stop() == 0
            page.wait_for_function("ends.length == 1")
            assert page.evaluate("ends") == ["draining"]
            node.process.stdout.close()  # type: ignore[union-attr]
            node = start_node(tmp_path / "data", "--port", port)
            send(node, "2")
            page.wait_for_function("seen.length == 2")
            node.kill()
            node.process.stdout.close()  # type: ignore[union-attr]
            node = start_node(tmp_path / "data", "--port", port)
            send(node, "3")
            page.wait_for_function("seen.length == 3")
            assert page.evaluate("seen") == ["1", "2", "3"]
            assert page.evaluate("opened") == 3
            page.evaluate("source.close()")
        finally:
            node.kill()
            node.process.stdout.close()  # type: ignore[union-attr]


def test_an_end_that_nothing_follows_closes_the_source(browser: Browser, node: RunningNode) -> None:
    send(node, "1")
    with watched_page(browser) as watched:
        page = watched.page
        open_page(page, node)
        page.evaluate(FOLLOW, f"{TOPIC}/stream?at=earliest")
        page.wait_for_function("seen.length == 1")
        httpx.delete(f"{node.url}{TOPIC}", timeout=60).raise_for_status()
        page.wait_for_function("ends.length == 1 && source.readyState == EventSource.CLOSED")
        assert page.evaluate("ends") == ["topic_deleted"]


def test_a_leased_stream_in_a_page(browser: Browser, node: RunningNode) -> None:
    send(node, "1", "2", "3")
    with watched_page(browser) as watched:
        page = watched.page
        open_page(page, node)
        page.evaluate(
            """url => {
                window.seen = [];
                const source = window.source = new EventSource(url);
                source.onmessage = async event => {
                    const message = JSON.parse(event.data);
                    window.seen.push(message.text);
                    await fetch('/v1/receipts/' + message.receipt_handle, {method: 'DELETE'});
                };
            }""",
            f"{TOPIC}/groups/page/stream?credit=1",
        )
        page.wait_for_function("seen.length == 3")
        assert sorted(page.evaluate("seen")) == ["1", "2", "3"]
        page.evaluate("source.close()")
