"""What an operator sets in Chromium: settings, schedules; and what goes wrong on the way."""

import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.clients.browser import watched_page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def http(bare: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=bare, timeout=60) as client:
        client.put("/v1/topics/orders", json={"queues": 2}).raise_for_status()
        yield client


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with watched_page(browser) as watched:
        watched.page.set_default_timeout(15_000)
        yield watched.page
        assert watched.policy_violations() == []


def test_settings_change_after_they_were_shown_and_not_over_those_of_another(
    page: Page, bare: str, http: httpx.Client
) -> None:
    page.goto(f"{bare}/ui/topics/orders/settings")
    page.get_by_label("retention", exact=True).fill("7d")
    page.get_by_role("button", name="Show what would change").click()
    row = page.get_by_role("row").filter(has_text="retention")
    expect(row.first).to_contain_text("7d")
    assert http.get("/v1/topics/orders").json()["retention"] == "3d"
    page.get_by_role("button", name="Change the settings").click()
    expect(page.get_by_role("status")).to_have_text("The settings are changed.")
    assert http.get("/v1/topics/orders").json()["retention"] == "7d"
    http.patch("/v1/topics/orders", json={"retention": "9d"}).raise_for_status()
    page.get_by_label("retention", exact=True).fill("8d")
    page.get_by_role("button", name="Show what would change").click()
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_label("retention", exact=True)).to_have_value("8d")
    assert http.get("/v1/topics/orders").json()["retention"] == "9d"


def test_a_schedule_is_paused_resumed_and_deleted(
    page: Page, bare: str, http: httpx.Client
) -> None:
    nightly = {"cron": "0 3 * * *", "topic": "orders", "message": {"text": "report"}}
    http.put("/v1/schedules/nightly", json=nightly).raise_for_status()
    page.goto(f"{bare}/ui/schedules")
    page.get_by_role("link", name="nightly").click()
    page.get_by_role("button", name="Pause the schedule").click()
    expect(page.get_by_role("status")).to_have_text("The schedule is paused.")
    assert http.get("/v1/schedules/nightly").json()["paused"]
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("status")).to_have_text("The schedule goes on.")
    assert not http.get("/v1/schedules/nightly").json()["paused"]
    expect(page.get_by_role("button", name="Delete the schedule")).to_be_disabled()
    page.get_by_label("Type the name to confirm").fill("nightly")
    page.get_by_role("button", name="Delete the schedule").click()
    expect(page.get_by_role("status")).to_have_text("The schedule is deleted.")
    assert http.get("/v1/schedules/nightly").status_code == 404


def test_what_is_not_there_and_what_does_not_parse_say_what_to_do(
    page: Page, bare: str, http: httpx.Client
) -> None:
    for path in ("topics/nowhere", "groups/nobody", "schedules/never", "transactions/none"):
        page.goto(f"{bare}/ui/{path}")
        expect(page.get_by_role("heading", level=1)).to_have_text("There is no such thing here")
        expect(page.get_by_role("alert")).to_contain_text(path.rpartition("/")[2])
    page.get_by_role("link", name="To the first page").click()
    expect(page).to_have_title("Overview · Curlew")
    page.goto(f"{bare}/ui/topics/orders/messages")
    page.get_by_label("Filter", exact=True).fill("sql:a AND")
    page.get_by_role("button", name="Look").click()
    expect(page.get_by_role("alert")).to_contain_text("AND")
    expect(page.get_by_label("Filter", exact=True)).to_have_value("sql:a AND")
    assert http.get("/v1/topics/orders/stats").json()["depth"] == 0


def test_the_page_of_nodes_says_how_the_disk_and_the_log_are(
    page: Page, bare: str, http: httpx.Client
) -> None:
    http.post("/v1/topics/orders/messages", content=b"on the medium").raise_for_status()
    page.goto(f"{bare}/ui/nodes")
    for label, text in (
        ("Disk free", r"\d [KMGTP]iB\s*of [\d.]+ [KMGTP]iB"),
        ("Log", r"\d (?:Ki)?B\s*\d+ segments?"),
        ("A sync takes", r"\d\.\d ms\s*of the log to the disk"),
    ):
        term = page.get_by_text(label, exact=True)
        figure = page.locator(".figure").filter(has=term)
        expect(figure.locator("dd")).to_contain_text(re.compile(text))
