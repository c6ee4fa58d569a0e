"""The topics page of a real node, filled over HTTP: first empty, then with what was sent."""

from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.clients.browser import watched_page
from tests.support.nodes.node import run_node

pytestmark = pytest.mark.browser


def depths(page: Page) -> dict[str, str]:
    names = page.locator(".topics .name").all_inner_texts()
    return dict(zip(names, page.locator(".topics .depth").all_inner_texts(), strict=True))


def test_the_page_shows_what_was_sent(browser: Browser, tmp_path: Path) -> None:
    with run_node(tmp_path / "data") as node, watched_page(browser, theme="dark") as watched:
        page = watched.page
        page.goto(f"{node.url}/ui")
        expect(page.get_by_text("There is no topic yet.")).to_be_visible()

        with httpx.Client(base_url=node.url, timeout=60) as client:
            client.put("/v1/topics/audit", json={"queues": 2}).raise_for_status()
            for number in range(7):
                client.post("/v1/topics/orders/messages", content=b"%d" % number).raise_for_status()
        page.reload()
        assert depths(page) == {"audit": "0", "orders": "7"}
        watched.keep_picture("real-node")

        assert watched.console == []
        assert watched.policy_violations() == []
        assert watched.foreign_requests(node.url) == []

        for link in page.locator("a[href*='/v1/']").all():
            href = link.get_attribute("href")
            answer = httpx.get(f"{node.url}{href}", timeout=60)
            assert answer.headers["content-type"].startswith("application/json"), href
            assert answer.status_code == 200, href
