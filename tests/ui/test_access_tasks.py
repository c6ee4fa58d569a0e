"""Keys and policies by the pages of a closed node: made, shown once, revoked, asked about."""

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from tests.support.clients.browser import watched_page
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
    page.get_by_role("button", name="Make the principal").click()
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
