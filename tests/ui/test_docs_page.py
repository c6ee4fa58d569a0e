"""The page of the API's operations in Chromium: its search, its addresses, both themes."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.clients.browser import Theme, watched_page
from tests.support.nodes.node import run_node

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with run_node(tmp_path_factory.mktemp("docs") / "data") as node:
        yield node.url


def shown(page: Page) -> set[str]:
    """The names of the operations that are not hidden."""
    found: list[str] = page.evaluate(
        "() => [...document.querySelectorAll('details:not([hidden])')].map(each => each.id)"
    )
    return set(found)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1_200])
def test_the_search_leaves_what_has_every_word(
    browser: Browser, origin: str, theme: Theme, width: int
) -> None:
    with watched_page(browser, theme=theme, width=width) as watched:
        page = watched.page
        page.goto(f"{origin}/docs")
        everything = shown(page)
        assert len(everything) > 80
        search = page.get_by_role("searchbox", name="Search the operations")
        search.fill("POST redrive")
        found = shown(page)
        assert "redrive_dead_letters" in found
        assert len(found) < 10
        expect(page.get_by_role("status")).to_have_text(
            f"{len(found)} of {len(everything)} operations"
        )
        watched.keep_picture(f"docs-{theme}-{width}")
        search.fill("nothing has this word")
        assert shown(page) == set()
        search.fill("")
        assert shown(page) == everything
        page.locator("#send_message summary").click()
        assert watched.console == []
        assert watched.policy_violations() == []
        assert watched.foreign_requests(origin) == []
        assert not watched.is_wider_than_the_window()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_is_for_everybody(browser: Browser, origin: str, theme: Theme) -> None:
    with watched_page(browser, theme=theme, inspect=True) as watched:
        watched.page.goto(f"{origin}/docs")
        watched.page.locator("#send_message summary").click()
        assert watched.accessibility_violations() == []


def test_an_address_names_a_search_and_an_operation(browser: Browser, origin: str) -> None:
    with watched_page(browser) as watched:
        page = watched.page
        page.goto(f"{origin}/docs?q=transaction")
        assert 0 < len(shown(page)) < 40
        page.goto(f"{origin}/docs#send_message")
        expect(page.locator("#send_message table")).to_be_visible()
        expect(page.locator("#receive_messages table")).to_be_hidden()


def test_an_operation_is_tried_on_the_node(browser: Browser, origin: str) -> None:
    with watched_page(browser) as watched:
        page = watched.page
        page.goto(f"{origin}/docs#put_topic")
        put = page.locator("#put_topic")
        put.get_by_label("topic (path)").fill("tried-out")
        put.get_by_label("body", exact=True).fill('{"queues": 2}')
        put.get_by_role("button", name="Try it").click()
        expect(put.get_by_label("Answer")).to_contain_text('"tried-out"')
        expect(put.get_by_label("Answer")).to_contain_text("201")
        page.goto(f"{origin}/docs#get_topic")
        got = page.locator("#get_topic")
        got.get_by_label("topic (path)").fill("a/b")
        got.get_by_role("button", name="Try it").click()
        expect(got.get_by_label("Answer")).to_contain_text("topic name 'a/b' is not allowed")
        assert [line for line in watched.console if "400" not in line] == []
        assert watched.policy_violations() == []
        assert watched.foreign_requests(origin) == []


def test_the_page_is_whole_without_scripts(browser: Browser, origin: str) -> None:
    with watched_page(browser, scripts=False) as watched:
        watched.page.goto(f"{origin}/docs")
        expect(watched.page.locator("#send_message summary")).to_be_visible()
        expect(watched.page.get_by_role("searchbox")).to_be_hidden()


def test_the_front_door_is_the_overview(browser: Browser, origin: str) -> None:
    with watched_page(browser) as watched:
        watched.page.goto(origin)
        expect(watched.page).to_have_url(f"{origin}/ui/")
        expect(watched.page).to_have_title("Overview · Curlew")
