"""What an operator does with messages, in Chromium: find one by time, key, id and text, read it to
the last digit, publish a copy, watch the tail, and learn why one is not delivered."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.clients.browser import CLICKS_MAX, Operator, watched_page
from tests.support.clients.ui_pages import BIG_NUMBER, HOSTILE, Filled

pytestmark = pytest.mark.browser


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with watched_page(browser) as watched:
        yield watched.page
        assert watched.policy_violations() == []


def look(page: Page, **fields: str) -> None:
    for label, text in fields.items():
        page.get_by_label(label, exact=True).fill(text)
    page.get_by_role("button", name="Look").click()


def test_find_a_message_by_key_from_the_overview(page: Page, filled: Filled) -> None:
    operator = Operator(page, filled.url)
    operator.begin()
    operator.search("o-29")
    expect(page.locator("main tbody tr")).to_have_count(1)
    operator.click_on(page.locator("main tbody a"))
    assert operator.clicks <= CLICKS_MAX
    expect(page.get_by_text("o-29", exact=True)).to_be_visible()


def test_find_a_message_by_id(page: Page, filled: Filled) -> None:
    operator = Operator(page, filled.url)
    operator.begin()
    operator.search(filled.ids["message"])
    operator.click_on(page.locator("main tbody a"))
    assert operator.clicks <= CLICKS_MAX
    expect(page.get_by_role("heading", level=1)).to_have_text(filled.ids["message"])


def find_among_messages(page: Page, filled: Filled, **fields: str) -> Operator:
    """Have the list of a topic's messages look for something."""
    operator = Operator(page, filled.url)
    operator.begin()
    operator.click("link", "Topics")
    operator.click("link", "Messages orders")
    for label, text in fields.items():
        page.get_by_label(label, exact=True).fill(text)
    operator.click("button", "Look")
    return operator


def open_found(operator: Operator, filled: Filled, name: str) -> None:
    """Open the message that was looked for: the task is done."""
    page, message_id = operator.page, filled.ids[name]
    operator.click_on(page.locator(f"main a[href$='{message_id}']"))
    expect(page.get_by_role("heading", level=1)).to_have_text(message_id)
    assert operator.clicks <= CLICKS_MAX


def test_find_a_message_by_its_text(page: Page, filled: Filled) -> None:
    operator = find_among_messages(page, filled, **{"Text in the body": '"place":29'})
    open_found(operator, filled, "json")


def test_find_messages_by_text_tag_and_property(page: Page, filled: Filled) -> None:
    find_among_messages(page, filled, **{"Text in the body": '"place":17'})
    expect(page.locator("main tbody tr")).to_have_count(1)
    expect(page.locator("main tbody")).to_contain_text(BIG_NUMBER)
    assert "text=%22place%22%3A17" in page.url
    page.goto(filled.page("topics/orders/messages"))
    look(page, Tag="created", Property="trace=t-1")
    expect(page.locator("main tbody tr")).to_have_count(1)
    expect(page.locator("main tbody")).to_contain_text(HOSTILE)


def test_find_messages_by_time(page: Page, filled: Filled) -> None:
    url = f"{filled.url}/v1/topics/orders/messages/{filled.ids['json']}"
    stored_ms = httpx.get(url, timeout=60).json()["store_time_ms"]
    begin = datetime.fromtimestamp(stored_ms / 1_000, UTC)
    text = begin.strftime("%Y-%m-%d %H:%M:%S.") + f"{stored_ms % 1_000:03}"
    operator = find_among_messages(page, filled, **{"From, UTC": text})
    open_found(operator, filled, "json")
    page.goto(filled.page("topics/orders/messages"))
    look(page, **{"From, UTC": "", "Until, UTC": "2001-01-01"})
    expect(page.get_by_text("No message is one of these.")).to_be_visible()
    look(page, **{"Until, UTC": "yesterday"})
    expect(page.get_by_text("This is no time: yesterday")).to_be_visible()
    expect(page.get_by_label("Until, UTC")).to_have_value("yesterday")


LONG: Final = "telemetry-of-all-vehicles-in-the-northern-fleet-and-of-some-others"
BEGINS: Final = ("", "from=1970-01-01", "until=2100-01-01")


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize(
    ("queue", "begin"),
    [*(("", each) for each in BEGINS), *(("queue=2", each) for each in (*BEGINS, "offset=3"))],
)
@pytest.mark.parametrize("condition", ["", "tag=paid", "text=place", "filter=sql:TAGS+IS+NOT+NULL"])
def test_every_combination_of_a_look(
    filled: Filled, direction: str, begin: str, queue: str, condition: str
) -> None:
    """Over HTTP: what a page shows is what the node has, in the order that was asked for."""
    asked = "&".join(filter(None, [f"direction={direction}", begin, queue, condition]))
    answer = httpx.get(filled.page(f"topics/orders/messages?{asked}"), timeout=60)
    assert answer.status_code == 200
    rows = re.findall(r'<td class="number">(\d+)</td>\s*<td class="number">(\d+)</td>', answer.text)
    found = [(int(queue_id), int(offset)) for queue_id, offset in rows]
    assert found == expected(filled, direction, begin, queue, condition)


def expected(
    filled: Filled, direction: str, begin: str, queue: str, condition: str
) -> list[tuple[int, int]]:
    url = f"{filled.url}/v1/topics/orders/messages?direction=forward&page_size=100"
    everything = httpx.get(url, timeout=60).json()["messages"]
    kept = [
        (each["queue_id"], each["queue_offset"])
        for each in everything
        if (not queue or each["queue_id"] == 2)
        and (condition != "tag=paid" or each.get("tag") == "paid")
        and (condition != "text=place" or "place" in each.get("text", ""))
        and (not condition.startswith("filter") or "tag" in each)
    ]
    if direction == "backward":
        kept.reverse()
    if begin == "offset=3":
        forward = direction == "forward"
        kept = [each for each in kept if (each[1] >= 3 if forward else each[1] <= 3)]
    return kept


def test_a_number_over_64_bits_reads_exactly(page: Page, filled: Filled) -> None:
    page.goto(filled.page("topics/orders/messages/{json}"))
    body = page.locator("pre.body")
    expect(body).to_contain_text(f'"id": {BIG_NUMBER}')
    expect(body).to_contain_text('"price": 1.10')
    page.get_by_role("link", name="hex", exact=True).click()
    expect(body).to_contain_text("00000000  7b 22 69 64")
    page.get_by_role("link", name="base64", exact=True).click()
    expect(body).to_contain_text("eyJpZCI6")


def test_publish_a_copy_which_a_second_click_does_not_send_again(
    page: Page, filled: Filled
) -> None:
    operator = Operator(page, filled.url)
    operator.begin()
    operator.search(filled.ids["binary"])
    operator.click_on(page.locator("main tbody a"))
    operator.click("link", "Publish a copy")
    page.get_by_label("Tag", exact=True).fill("copied")
    page.get_by_label(re.compile("^Properties")).fill("by=hand\nregion=eu")
    form = page.evaluate("Object.fromEntries(new FormData(document.querySelector('main form')))")
    operator.click("button", "Send")
    expect(page.get_by_text("The message is sent: this is it.")).to_be_visible()
    assert operator.clicks <= CLICKS_MAX
    expect(page.get_by_text("copied", exact=True)).to_be_visible()
    page.reload()
    expect(page.get_by_text("The message is sent: this is it.")).to_be_hidden()
    again = page.request.post(filled.page("topics/orders/publish"), form=form)
    assert again.url.partition("?")[0] == page.url.partition("?")[0]
    url = f"{filled.url}/v1/topics/orders/messages?tag=copied&body=base64"
    (copy,) = httpx.get(url, timeout=60).json()["messages"]
    url = f"{filled.url}/v1/topics/orders/messages/{filled.ids['binary']}?body=base64"
    assert copy["body_base64"] == httpx.get(url, timeout=60).json()["body_base64"]
    assert copy["properties"] == {"by": "hand", "region": "eu"}


def test_a_form_with_a_mistake_keeps_what_was_typed(page: Page, filled: Filled) -> None:
    page.goto(filled.page("topics/orders/publish"))
    page.get_by_label(re.compile("^Properties")).fill("no value")
    page.get_by_label("Text of the body").fill("precious")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("this is none: no value")).to_be_visible()
    expect(page.get_by_label("Text of the body")).to_have_value("precious")


def test_why_a_message_is_not_delivered_to_a_group(page: Page, filled: Filled) -> None:
    operator = Operator(page, filled.url)
    operator.begin()
    operator.search(filled.ids["json"])
    operator.click_on(page.locator("main tbody a"))
    page.get_by_label("Why is it not delivered to the group").fill("billing")
    operator.click("button", "Ask")
    assert operator.clicks <= CLICKS_MAX
    row = page.locator("main tbody tr", has_text="billing")
    expect(row).to_contain_text("ready")
    expect(row).to_contain_text("it can be received")
    way = row.get_by_role("link", name="billing").get_attribute("href")
    assert way is not None
    assert way.endswith("/groups/billing")
    page.get_by_label("Why is it not delivered to the group").fill("nobody")
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_text("There is no group nobody that you may see.")).to_be_visible()


def test_the_tail_samples_and_says_what_it_skipped(page: Page, filled: Filled) -> None:
    operator = Operator(page, filled.url)
    operator.begin()
    operator.click("link", "Topics")
    operator.click("link", LONG)
    operator.click("link", "Live tail")
    assert operator.clicks <= CLICKS_MAX
    expect(page.locator("html")).to_have_attribute("data-live", "on", timeout=20_000)
    with httpx.Client(base_url=filled.url, timeout=60) as client:
        entries = [{"text": f"line {number}"} for number in range(500)]
        where = f"/v1/topics/{LONG}/messages:batch"
        client.post(where, json={"messages": entries}).raise_for_status()
    # the node may have shown them in two looks, each with its newest
    said = re.compile(r"500 came while you look, 4\d\d of them skipped")
    expect(page.locator("#live")).to_contain_text(said, timeout=30_000)
    found = re.search(r"look, (\d+) of them", page.locator("#live").inner_text())
    assert found is not None
    expect(page.locator("main tbody tr")).to_have_count(500 - int(found[1]))
    expect(page.locator("main tbody tr").first).to_contain_text("line 499")


def test_make_a_topic_and_delete_it_by_its_name(page: Page, filled: Filled) -> None:
    page.goto(filled.page("topics"))
    page.get_by_label("Name", exact=True).fill("short-lived")
    page.get_by_role("button", name="Make it").click()
    expect(page.get_by_text("The topic is made.")).to_be_visible()
    page.get_by_role("link", name="Settings").click()
    expect(page.get_by_role("button", name="Delete it for ever")).to_be_disabled()
    page.get_by_label("Type short-lived to delete it").fill("short-lived")
    page.get_by_role("button", name="Delete it for ever").click()
    expect(page.get_by_text("The topic is deleted, and all its messages.")).to_be_visible()
    page.get_by_label("Name", exact=True).fill("no such name!")
    page.get_by_role("button", name="Make it").click()
    expect(page.locator(".notice.bad")).to_be_visible()
