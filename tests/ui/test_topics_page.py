"""The topics page in Chromium: both themes, narrow and wide, with and without JavaScript."""

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.clients.browser import Theme, Watched, watched_page
from tests.support.clients.web_fakes import HOSTILE_NAME

pytestmark = pytest.mark.browser

THEMES: tuple[Theme, ...] = ("light", "dark")
WIDTHS = (360, 1_200)


def open_details(page: Page) -> None:
    for summary in page.locator("summary").all():
        summary.click()


def names(page: Page) -> list[str]:
    return page.locator(".topics .name").all_inner_texts()


def assert_well_behaved(watched: Watched, origin: str) -> None:
    assert watched.console == []
    assert watched.policy_violations() == []
    assert watched.foreign_requests(origin) == []
    assert not watched.is_wider_than_the_window()


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_is_whole_in_every_look(
    browser: Browser, busy: str, theme: Theme, width: int
) -> None:
    with watched_page(browser, theme=theme, width=width) as watched:
        page = watched.page
        page.goto(f"{busy}/ui/")
        expect(page).to_have_title("Topics · Curlew")
        expect(page.get_by_role("heading", name="Topics")).to_be_visible()
        watched.keep_picture(f"topics-{theme}-{width}")
        open_details(page)
        assert_well_behaved(watched, busy)
        watched.keep_picture(f"topics-open-{theme}-{width}")


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_empty_page_is_whole_in_every_look(
    browser: Browser, empty: str, theme: Theme, width: int
) -> None:
    with watched_page(browser, theme=theme, width=width) as watched:
        watched.page.goto(f"{empty}/ui/")
        expect(watched.page.get_by_text(f"curl -X PUT {empty}/v1/topics/orders")).to_be_visible()
        assert_well_behaved(watched, empty)
        watched.keep_picture(f"empty-{theme}-{width}")


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("path", ["/ui/", "/ui/?prefix=none", "/ui/missing"])
def test_axe_finds_nothing(browser: Browser, busy: str, theme: Theme, path: str) -> None:
    with watched_page(browser, theme=theme, inspect=True) as watched:
        watched.page.goto(f"{busy}{path}")
        open_details(watched.page)
        assert watched.accessibility_violations() == []


def test_axe_would_find_pale_text(browser: Browser, busy: str) -> None:
    with watched_page(browser, inspect=True) as watched:
        watched.page.goto(f"{busy}/ui/")
        watched.page.add_style_tag(content=":root { --quiet: #cccccc !important; }")
        found = watched.accessibility_violations()
        assert any(line.startswith("color-contrast") for line in found)


def test_the_policy_stops_a_script_and_says_so(browser: Browser, busy: str) -> None:
    with watched_page(browser) as watched:
        watched.page.goto(f"{busy}/ui/")
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


def test_a_hostile_name_is_only_text(browser: Browser, busy: str) -> None:
    with watched_page(browser, inspect=True) as watched:  # the policy must not be what saves us
        watched.page.goto(f"{busy}/ui/")
        assert HOSTILE_NAME in names(watched.page)
        expect(watched.page.locator("img[src=x]")).to_have_count(0)
        expect(watched.page).to_have_title("Topics · Curlew")


def test_depth_and_offsets_are_exact(browser: Browser, busy: str) -> None:
    with watched_page(browser) as watched:
        page = watched.page
        page.goto(f"{busy}/ui/?prefix=orders")
        row = page.locator(".topics > tbody")
        expect(row.locator(".depth")).to_have_text("233,935")
        page.get_by_text("4 queues of orders").click()
        queue = row.locator(".queues tbody tr").first
        expect(queue.locator("th, td")).to_have_text(["0", "12,000", "90,122", "78,122"])


def test_everything_is_there_without_scripts(browser: Browser, busy: str) -> None:
    with watched_page(browser, scripts=False) as watched:
        page = watched.page
        page.goto(f"{busy}/ui/")
        expect(page.locator(".topics > tbody")).to_have_count(7)
        page.get_by_text("4 queues of orders").click()
        expect(page.get_by_text("90,122")).to_be_visible()
        page.get_by_label("Name begins with").fill("pay")
        page.get_by_role("button", name="Filter").click()
        expect(page.locator(".topics .name")).to_have_text(["payments"])


def test_filter_and_pages_are_in_the_address(browser: Browser, crowded: str) -> None:
    with watched_page(browser) as watched:
        page = watched.page
        page.goto(f"{crowded}/ui/")
        page.get_by_label("Name begins with").fill("even")
        page.get_by_role("button", name="Filter").click()
        expect(page).to_have_url(re.compile(r"/ui/\?prefix=even$"))
        expect(page.get_by_text("50 of 60 shown")).to_be_visible()
        page.get_by_role("link", name="Next page").click()
        expect(page).to_have_url(re.compile(r"prefix=even&after=even-098$"))
        assert names(page) == [f"even-{number:03}" for number in range(100, 120, 2)]
        watched.keep_picture("topics-last-page")
        page.get_by_role("link", name="First page").click()
        assert names(page)[0] == "even-000"


def test_the_keyboard_reaches_everything(browser: Browser, busy: str) -> None:
    with watched_page(browser) as watched:
        page = watched.page
        page.goto(f"{busy}/ui/?prefix=orders")
        for expected in ("Skip to the content", "Curlew", "Topics", "OpenAPI"):
            page.keyboard.press("Tab")
            expect(page.locator(":focus")).to_have_text(re.compile(expected))
        page.keyboard.press("Tab")
        expect(page.get_by_label("Name begins with")).to_be_focused()
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.get_by_text("90,122")).to_be_visible()
