"""What surrounds every page: shortcuts, theme, language, live data and its pause."""

from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.support.clients.browser import watched_page
from tests.support.clients.ui_pages import Filled
from tests.support.nodes.node import run_node, start_node

pytestmark = pytest.mark.browser


def test_the_keyboard_leads_everywhere(browser: Browser, filled: Filled) -> None:
    with watched_page(browser) as watched:
        page = watched.page
        page.goto(filled.page(""))
        page.keyboard.press("g")
        page.keyboard.press("t")
        expect(page).to_have_title("Topics · Curlew")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Shortcuts")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()
        page.keyboard.press("Tab")
        expect(page.locator(":focus")).to_be_visible()


def test_theme_and_language_stay(browser: Browser, filled: Filled) -> None:
    with watched_page(browser, scripts=False) as watched:
        page = watched.page
        page.goto(filled.page("topics?prefix=ord"))
        page.get_by_role("button", name="Dark").click()
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        assert page.url.endswith("/ui/topics?prefix=ord")
        page.get_by_role("button", name="中文").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("主题")
        expect(page.locator("html")).to_have_attribute("lang", "zh")
        page.goto(filled.page(""))
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_a_page_follows_pauses_and_goes_on(browser: Browser, tmp_path: Path) -> None:
    with run_node(tmp_path / "data") as node, watched_page(browser) as watched:
        page = watched.page
        page.goto(f"{node.url}/ui/")
        expect(page.locator("html")).to_have_attribute("data-live", "on", timeout=20_000)
        expect(page.get_by_text("There is no topic yet.")).to_be_visible()
        httpx.post(f"{node.url}/v1/topics/orders/messages", content=b"1", timeout=60)
        expect(page.get_by_text("There is no topic yet.")).to_be_hidden(timeout=15_000)
        page.keyboard.press("p")
        expect(page.locator("html")).to_have_attribute("data-live", "paused")
        page.get_by_role("button", name="Go on").click()
        expect(page.locator("html")).to_have_attribute("data-live", "on", timeout=20_000)
        assert watched.console == []
        assert watched.policy_violations() == []


def test_a_node_that_dies_is_told_of_and_the_page_goes_on(browser: Browser, tmp_path: Path) -> None:
    with watched_page(browser) as watched, run_node(tmp_path / "data") as node:
        page = watched.page
        page.goto(f"{node.url}/ui/")
        expect(page.locator("html")).to_have_attribute("data-live", "on", timeout=20_000)
        node.kill()
        expect(page.get_by_text("The node does not answer.")).to_be_visible(timeout=15_000)
        again = start_node(node.data_dir, "--port", str(node.port))
        try:
            expect(page.get_by_text("The node does not answer.")).to_be_hidden(timeout=30_000)
            expect(page.locator("html")).to_have_attribute("data-live", "on", timeout=20_000)
        finally:
            again.stop()
            assert again.process.stdout is not None
            again.process.stdout.close()
