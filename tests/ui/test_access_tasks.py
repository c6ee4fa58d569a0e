"""Keys and policies by the pages of a closed node: made, shown once, revoked, asked about."""

from collections.abc import Iterator
from typing import Final

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from tests.support.clients.browser import CLICKS_MAX, Operator, Theme, watched_page
from tests.support.clients.serving import served
from tests.support.nodes.node import RunningNode, run_node

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    directory = tmp_path_factory.mktemp("access")
    environment = {"CURLEW_ADMIN_KEY_FILE": str(directory / "admin.key")}
    with run_node(directory / "data", environment=environment) as running:
        yield running


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with watched_page(browser) as watched:
        watched.page.set_default_timeout(15_000)
        yield watched.page
        assert watched.policy_violations() == []


def test_keys_are_made_shown_once_and_revoked(page: Page, node: RunningNode) -> None:
    admin = (node.data_dir.parent / "admin.key").read_text().strip()
    page.goto(f"{node.url}/ui/principals")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.get_by_label("API key").fill(admin)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_text("New principal").click()
    page.get_by_label("Name", exact=True).fill("shop")
    page.get_by_label("producer", exact=True).check()
    page.get_by_label("Kept to these names").fill("topic:orders")
    page.get_by_label("Let in from these networks").fill("127.0.0.0/8")
    page.get_by_role("button", name="Make the principal").click()
    page.get_by_role("link", name="Principals").first.click()
    expect(page.get_by_role("row", name="shop")).to_contain_text("127.0.0.0/8")
    expect(page.get_by_role("row", name="admin")).to_contain_text("anywhere")
    page.get_by_role("link", name="shop", exact=True).click()
    page.get_by_role("button", name="Make a key").click()
    key = page.locator(".notice code").inner_text()
    sent = {"url": f"{node.url}/v1/topics/orders/messages", "content": b"x"}
    bearer = {"authorization": f"Bearer {key}"}
    theirs = {"authorization": f"Bearer {admin}"}
    httpx.put(f"{node.url}/v1/topics/orders", json={}, headers=theirs).raise_for_status()
    assert httpx.post(**sent, headers=bearer).status_code == 201  # type: ignore[arg-type]
    page.goto(f"{node.url}/ui/principals/shop")
    assert key not in page.content()
    page.get_by_text("Revoke …").click()
    page.get_by_role("button", name="Revoke: who has it is refused at once").click()
    expect(page.get_by_role("status")).to_have_text("The key is revoked: it works no more.")
    assert httpx.post(**sent, headers=bearer).status_code == 401  # type: ignore[arg-type]

    page.goto(f"{node.url}/ui/policies?principal=shop&action=PUB&kind=topic&name=orders")
    expect(page.get_by_role("status")).to_contain_text("Yes.")
    page.get_by_text("New policy").click()
    page.get_by_label("Name", exact=True).fill("frozen")
    page.get_by_label("Effect").select_option("DENY")
    page.get_by_label("Whom").fill("principal:shop")
    page.get_by_label("PUB", exact=True).check()
    page.get_by_label("On what, one a line").fill("topic:*")
    page.get_by_role("button", name="Make the policy").click()
    page.goto(f"{node.url}/ui/policies?principal=shop&action=PUB&kind=topic&name=orders")
    expect(page.get_by_role("status")).to_contain_text("The policy frozen denies it")
    page.get_by_role("link", name="frozen").click()
    page.get_by_label("Type the name to confirm").fill("frozen")
    page.get_by_role("button", name="Delete the policy").click()
    expect(page.get_by_role("status")).to_have_text("The policy is deleted.")

    page.goto(f"{node.url}/ui/audit?resource=policy:frozen")
    expect(page.locator("main tbody tr").filter(has_text="frozen").first).to_be_visible()


def sign_in(page: Page, node: RunningNode, way: str = "") -> None:
    """As the administrator; the page at `way` opens."""
    page.goto(f"{node.url}/ui/{way}")
    page.get_by_label("API key").fill((node.data_dir.parent / "admin.key").read_text().strip())
    page.get_by_role("button", name="Sign in").click()


def make_principal(page: Page, node: RunningNode, name: str) -> None:
    """Over the API, as who is signed in."""
    admin = (node.data_dir.parent / "admin.key").read_text().strip()
    where, headers = f"{node.url}/v1/principals/{name}", {"authorization": f"Bearer {admin}"}
    httpx.put(where, json={"roles": ["viewer"]}, headers=headers).raise_for_status()


def test_a_key_is_made_and_revoked_in_a_few_clicks(page: Page, node: RunningNode) -> None:
    make_principal(page, node, "clicked")
    sign_in(page, node)
    operator = Operator(page, node.url)
    operator.begin()
    operator.click("link", "Principals")
    operator.click("link", "clicked")
    operator.click("button", "Make a key")
    key = page.locator(".notice code").inner_text()
    headers = {"authorization": f"Bearer {key}"}
    assert httpx.get(f"{node.url}/v1/whoami", headers=headers).json()["principal"] == "clicked"
    operator.click("button", "Revoke it at once")
    expect(page.get_by_role("status")).to_have_text("The key is revoked: it works no more.")
    assert operator.clicks <= CLICKS_MAX
    assert httpx.get(f"{node.url}/v1/whoami", headers=headers).status_code == 401


def test_a_form_that_is_sent_twice_makes_one_key(page: Page, node: RunningNode) -> None:
    make_principal(page, node, "twice")
    sign_in(page, node, "principals/twice")
    fields = {
        each.get_attribute("name") or "": each.input_value()
        for each in page.locator("form[action$='/keys'] input").all()
    }
    where = f"{node.url}/ui/principals/twice/keys"
    first = page.request.post(where, form=dict(fields))
    assert (first.status, "it is shown this once" in first.text()) == (200, True)
    again = page.request.post(where, form=dict(fields))
    assert (again.status, "none was made" in again.text()) == (400, True)
    page.reload()
    expect(page.locator("main tbody tr")).to_have_count(1)
    page.get_by_role("button", name="Make a key").click()  # of the page as it is now
    expect(page.locator("main tbody tr")).to_have_count(2)


def test_a_session_that_ends_in_the_middle_says_so_and_does_nothing(
    page: Page, node: RunningNode
) -> None:
    make_principal(page, node, "halfway")
    sign_in(page, node, "principals/halfway")
    form = page.get_by_role("button", name="Make a key")
    expect(form).to_be_visible()
    kept = page.context.cookies()
    page.request.post(f"{node.url}/ui/sign-out", headers={"origin": node.url})
    page.context.add_cookies(kept)  # type: ignore[arg-type]  # what was read is what is set
    form.click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(page.get_by_text("Your session has ended.")).to_be_visible()
    sign_in(page, node, "principals/halfway")
    expect(page.get_by_text("No key yet.")).to_be_visible()


CLOSED_PAGES: Final = ("", "principals", "principals/seen", "audit")


def test_the_pages_of_who_is_signed_in_are_for_everybody(
    page: Page, browser: Browser, node: RunningNode
) -> None:
    """In both themes; the policy of the pages is kept in the page beside, as axe is let past it."""
    make_principal(page, node, "seen")
    themes: tuple[Theme, ...] = ("light", "dark")
    with watched_page(browser, inspect=True) as inspected:
        sign_in(page, node)
        sign_in(inspected.page, node)
        for path in CLOSED_PAGES:
            page.goto(f"{node.url}/ui/{path}")
            expect(page.get_by_role("button", name="Sign out")).to_be_visible()
            assert page.evaluate("window.policyViolations") == []
            inspected.page.goto(f"{node.url}/ui/{path}")
            for theme in themes:
                inspected.page.emulate_media(color_scheme=theme)
                assert (path, inspected.accessibility_violations()) == (path, [])
        assert inspected.foreign_requests(node.url) == []


def test_a_link_on_a_page_of_somebody_else_needs_no_second_sign_in(
    page: Page, node: RunningNode
) -> None:
    admin = (node.data_dir.parent / "admin.key").read_text().strip()
    page.goto(f"{node.url}/ui/policies")
    page.get_by_label("API key").fill(admin)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Policies")).to_be_visible()
    (cookie,) = [each for each in page.context.cookies() if each["name"] == "curlew_session"]
    assert (cookie["sameSite"], cookie["httpOnly"]) == ("Strict", True)

    async def linking(_: Request) -> Response:
        link = f'<a href="{node.url}/ui/principals?prefix=ad">all</a>'
        return HTMLResponse(f"<!doctype html><title>Elsewhere</title>{link}")

    with served(Starlette(routes=[Route("/", linking)])) as origin:
        page.goto(origin.replace("127.0.0.1", "localhost"))
        page.get_by_role("link", name="all").click()
        expect(page.get_by_role("heading", name="Principals")).to_be_visible()
        assert page.url == f"{node.url}/ui/principals?prefix=ad"
