"""What holds for every page in Chromium: both themes, narrow and wide, axe, policy, planted
scripts, links, and reading without JavaScript."""

import re
from html import unescape
from typing import Final
from urllib.parse import urljoin

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.support.clients.browser import Theme, Watched, watched_page
from tests.support.clients.ui_pages import EMPTY_PAGES, PAGES, Filled

pytestmark = pytest.mark.browser

THEMES: Final[tuple[Theme, ...]] = ("light", "dark")
WIDTHS: Final = (380, 1_280)
REFUSED: Final = frozenset({"missing", "messages-refused"})
"""Pages whose answer is an error, which browsers note."""


def assert_well_behaved(watched: Watched, origin: str, name: str) -> None:
    said = [line for line in watched.console if not line.startswith("verbose")]
    assert [line for line in said if name not in REFUSED or "Failed to load" not in line] == []
    assert watched.policy_violations() == []
    assert watched.foreign_requests(origin) == []
    assert not watched.is_wider_than_the_window()
    assert watched.page.locator("img[src=x]").count() == 0
    assert "broken" not in watched.page.title()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_in_every_look(browser: Browser, filled: Filled, name: str) -> None:
    """Loaded once: theme and width change under it."""
    with watched_page(browser) as watched:
        page = watched.page
        page.goto(filled.page(PAGES[name]))
        expect(page.locator("h1")).to_be_visible()
        expect(page).to_have_title(re.compile(r".+ · Curlew"))
        for theme in THEMES:
            page.emulate_media(color_scheme=theme)
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 800})
                assert_well_behaved(watched, filled.url, name)
                watched.keep_picture(f"ui-{name}-{theme}-{width}")


@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing(browser: Browser, filled: Filled, name: str) -> None:
    with watched_page(browser, inspect=True) as watched:
        watched.page.goto(filled.page(PAGES[name]))
        for theme in THEMES:
            watched.page.emulate_media(color_scheme=theme)
            assert watched.accessibility_violations() == []
        # axe lets scripts in past the policy: so that is not what kept planted ones out
        assert "broken" not in watched.page.title()


@pytest.mark.parametrize("name", EMPTY_PAGES)
def test_an_empty_page_says_how_to_fill_it(browser: Browser, bare: str, name: str) -> None:
    for theme in THEMES:
        with watched_page(browser, theme=theme, inspect=True) as watched:
            watched.page.goto(f"{bare}/ui/{EMPTY_PAGES[name]}")
            expect(watched.page.locator("main .command code").first).to_contain_text("cur")
            assert watched.accessibility_violations() == []
            assert_well_behaved(watched, bare, name)
            watched.keep_picture(f"ui-empty-{name}-{theme}")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_reads_without_scripts(browser: Browser, filled: Filled, name: str) -> None:
    with (
        watched_page(browser) as with_scripts,
        watched_page(browser, scripts=False) as watched,
    ):
        with_scripts.page.goto(filled.page(PAGES[name]))
        watched.page.goto(filled.page(PAGES[name]))
        expect(watched.page.locator("h1")).to_be_visible()
        rows = watched.page.locator("main .table tbody tr").count()
        assert rows == with_scripts.page.locator("main .table tbody tr").count()


def test_every_address_on_the_pages_is_there(filled: Filled) -> None:
    """Each link of each page, and each request behind it, answers."""
    asked: set[str] = set()
    with httpx.Client(timeout=60) as client:
        for name, path in PAGES.items():
            where = filled.page(path)
            found = re.findall(r'href="([^"#]+)"', client.get(where).text)
            addresses = {urljoin(where, unescape(each)) for each in found} - asked
            asked |= addresses
            for address in sorted(addresses):
                status = client.get(address).status_code
                assert status == 200 or name == "messages-refused", (name, address)


def test_axe_would_find_pale_text(browser: Browser, filled: Filled) -> None:
    with watched_page(browser, inspect=True) as watched:
        watched.page.goto(filled.page("topics"))
        watched.page.add_style_tag(content=":root { --quiet: #cccccc !important; }")
        found = watched.accessibility_violations()
        assert any(line.startswith("color-contrast") for line in found)


def test_the_policy_stops_a_script_and_says_so(browser: Browser, filled: Filled) -> None:
    with watched_page(browser) as watched:
        watched.page.goto(filled.page("topics"))
        watched.page.evaluate(
            """() => {
                const script = document.createElement('script');
                script.textContent = "document.title = 'broken'";
                document.body.append(script);
            }"""
        )
        watched.page.wait_for_function("window.policyViolations.length > 0")
        assert watched.policy_violations() == ["script-src-elem inline"]
        expect(watched.page).to_have_title("Topics · Curlew")
