"""What an operator does with groups and what waits, in Chromium, each task to its end."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.clients.browser import CLICKS_MAX, Operator, watched_page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def http(bare: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=bare, timeout=60) as client:
        yield client


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with watched_page(browser) as watched:
        watched.page.set_default_timeout(15_000)
        yield watched.page
        refused = "the server responded with a status of 400"
        assert [line for line in watched.console if refused not in line] == []
        assert watched.policy_violations() == []


def ask(http: httpx.Client, method: str, path: str, body: Any = None) -> Any:
    answer = http.request(method, f"/v1/{path}", json=body)
    assert answer.is_success, answer.text
    return answer.json() if answer.content else None


def send(http: httpx.Client, topic: str, count: int) -> None:
    ask(http, "PUT", f"topics/{topic}", {"queues": 1})
    entries = [{"text": f"order {number}", "keys": [f"o-{number}"]} for number in range(count)]
    ask(http, "POST", f"topics/{topic}/messages:batch", {"messages": entries})


def receive(http: httpx.Client, topic: str, group: str, count: int) -> list[dict[str, Any]]:
    path = f"topics/{topic}/groups/{group}/messages:receive"
    messages: list[dict[str, Any]] = ask(http, "POST", path, {"max_messages": count})["messages"]
    return messages


def ready(http: httpx.Client, group: str) -> int | None:
    found: int | None = ask(http, "GET", f"groups/{group}/lag")["ready"]
    return found


def test_a_peek_gives_back_and_a_take_is_settled(page: Page, bare: str, http: httpx.Client) -> None:
    send(http, "peeked", 3)
    ask(http, "PUT", "groups/peekers", {})
    operator = Operator(page, bare)
    operator.begin()
    operator.click("link", "Groups")
    operator.click("link", "Receive peekers")
    page.get_by_label("Topic", exact=True).fill("peeked")
    operator.click("button", "Peek")
    expect(page.get_by_role("heading", name="3 messages seen, and given back")).to_be_visible()
    expect(page.get_by_text("order 2")).to_be_visible()
    assert ready(http, "peekers") == 3
    operator.click("button", "Take")
    expect(page.get_by_role("heading", name="3 messages taken")).to_be_visible()
    assert operator.clicks <= CLICKS_MAX
    expect(page.get_by_text("1 of 16").first).to_be_visible()  # the peek was no attempt
    assert ready(http, "peekers") == 0
    page.get_by_role("checkbox").first.uncheck()
    page.get_by_role("button", name="Ack", exact=True).click()
    expect(page.get_by_role("row").filter(has_text="done")).to_have_count(2)
    assert ask(http, "GET", "groups/peekers/lag")["in_flight"] == 1


def test_offsets_are_reset_after_the_table_was_confirmed(
    page: Page, bare: str, http: httpx.Client
) -> None:
    send(http, "replayed", 5)
    taken = receive(http, "replayed", "replayers", 5)
    handles = [each["receipt_handle"] for each in taken]
    acks = {"acks": handles}
    ask(http, "POST", "topics/replayed/groups/replayers/messages:settle", acks)
    assert ready(http, "replayers") == 0
    operator = Operator(page, bare)
    operator.begin()
    operator.click("link", "Groups")
    operator.click("link", "Reset offsets replayers")
    page.get_by_label("Go to").select_option("shift")
    page.get_by_label("Offset, or messages").fill("-2")
    operator.click("button", "Show what would happen")
    cells = page.locator("main tbody tr").first.locator("td")
    assert [cells.nth(place).inner_text() for place in range(5)] == ["0", "5", "3", "2", "0"]
    assert ready(http, "replayers") == 0  # a table changes nothing
    button = page.get_by_role("button", name="Reset the offsets")
    expect(button).to_be_disabled()
    page.get_by_label("Type the name to confirm").fill("replayers")
    form = page.locator("form.card")
    fields = {
        each.get_attribute("name"): each.input_value() for each in form.locator("input").all()
    }
    operator.click_on(button)
    expect(page.get_by_role("status")).to_have_text("1 queue was reset.")
    assert operator.clicks <= CLICKS_MAX
    assert ready(http, "replayers") == 2
    again = page.request.post(f"{bare}/ui/groups/replayers/offsets", form=fields)  # type: ignore[arg-type]
    assert again.status == 400
    assert "The group has moved" in again.text()
    assert ready(http, "replayers") == 2
    page.goto(f"{bare}/ui/groups/replayers/offsets")
    page.get_by_label("Go to").select_option("timestamp")
    page.get_by_label("Time (UTC)").fill("2026-05-04 10:20")  # before all of them
    page.get_by_role("button", name="Show what would happen").click()
    assert page.locator("main tbody tr").first.locator("td").nth(2).inner_text() == "0"
    page.goto(f"{bare}/ui/groups/replayers/offsets?to=offset&value=many")
    expect(page.get_by_role("alert")).to_contain_text("This is no whole number")


def test_a_rebalance_is_seen_and_read_in_the_history(
    page: Page, bare: str, http: httpx.Client
) -> None:
    ask(http, "PUT", "topics/shared", {"queues": 4})
    reads = {"subscriptions": [{"topic": "shared"}]}
    ask(http, "PUT", "groups/readers/members/anna", reads)
    operator = Operator(page, bare)
    operator.begin()
    operator.click("link", "Groups")
    operator.click("link", "readers")
    operator.click("link", "Members")
    expect(page.get_by_role("row").filter(has_text="anna")).to_contain_text("shared 0–3")  # noqa: RUF001
    ask(http, "PUT", "groups/readers/members/bert", reads)
    expect(page.get_by_role("row").filter(has_text="bert")).to_be_visible(timeout=15_000)
    operator.click("link", "Rebalances")
    assert operator.clicks <= CLICKS_MAX
    newest = page.locator("main tbody tr").first
    expect(newest).to_contain_text("bert joined the group")
    expect(newest).to_contain_text("anna, bert")
    ask(http, "DELETE", "groups/readers/members/anna")
    page.reload()
    expect(page.locator("main tbody tr").first).to_contain_text("anna left the group")


def test_a_group_is_paused_and_deleted_by_its_name(
    page: Page, bare: str, http: httpx.Client
) -> None:
    send(http, "kept", 4)
    receive(http, "kept", "leaving", 1)
    page.goto(f"{bare}/ui/groups/leaving/settings")
    page.get_by_role("button", name="Pause the group").click()
    expect(page.get_by_role("status")).to_have_text("The group is paused.")
    assert ask(http, "GET", "groups/leaving")["paused"]
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_text("3 messages wait for it, 1 in flight")).to_be_visible()
    wrong = page.request.post(f"{bare}/ui/groups/leaving/delete", form={"typed": "other"})
    assert wrong.status == 400
    assert "nothing was done" in wrong.text()
    page.get_by_label("Type the name to confirm").fill("leaving")
    page.get_by_role("button", name="Delete the group").click()
    expect(page.get_by_role("status")).to_have_text("The group is deleted.")
    assert http.get("/v1/groups/leaving").status_code == 404


def test_what_is_parked_is_released(page: Page, bare: str, http: httpx.Client) -> None:
    settings = {"order": "fifo", "on_exhausted": "park", "max_attempts": 1}
    ask(http, "PUT", "groups/strict", settings)
    send(http, "in-order", 1)
    (taken,) = receive(http, "in-order", "strict", 1)
    nack = {"nacks": [{"receipt_handle": taken["receipt_handle"], "reason": "no stock"}]}
    ask(http, "POST", "topics/in-order/groups/strict/messages:settle", nack)
    page.goto(f"{bare}/ui/groups/strict")
    parked = page.get_by_role("row").filter(has_text="no stock")
    parked.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("status")).to_have_text("The message is released.")
    assert ask(http, "GET", "groups/strict/parked")["parked"] == []
    assert len(receive(http, "in-order", "strict", 1)) == 1


def test_chosen_dead_letters_are_redriven_with_a_rate(
    page: Page, bare: str, http: httpx.Client
) -> None:
    send(http, "failed", 4)
    taken = receive(http, "failed", "failing", 4)
    letters = [{"receipt_handle": each["receipt_handle"], "reason": "no stock"} for each in taken]
    settle = {"dead_letters": letters}
    ask(http, "POST", "topics/failed/groups/failing/messages:settle", settle)
    page.goto(f"{bare}/ui/")
    page.get_by_role("link", name="Dead letters").click()
    page.get_by_role("link", name="failing").click()
    expect(page.get_by_role("row").filter(has_text="no stock")).to_have_count(4)
    page.get_by_role("button", name="Redrive …", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("No dead letter is chosen")
    page.goto(f"{bare}/ui/dead-letters/failing")
    page.get_by_role("checkbox").nth(0).check()
    page.get_by_role("checkbox").nth(2).check()
    page.get_by_role("button", name="Redrive …", exact=True).click()
    expect(page.get_by_text("2 dead letters are delivered to this group again")).to_be_visible()
    page.get_by_label("Letters a second, at most").fill("50")
    page.get_by_label("Type the name to confirm").fill("failing")
    page.get_by_role("button", name="Redrive").click()
    expect(page.locator("main tbody .tag.good")).to_have_count(2, timeout=15_000)
    assert ask(http, "GET", "groups/failing/dlq")["messages"] == 2
    assert len(receive(http, "failed", "failing", 4)) == 2
    page.goto(f"{bare}/ui/dead-letters/failing?reason=stock")
    page.get_by_role("button", name="Delete … all that match the filter").click()
    page.get_by_label("Type the name to confirm").fill("failing")
    page.get_by_role("button", name="Delete them for good").click()
    expect(page.get_by_role("status")).to_have_text("2 dead letters were deleted.")
    assert ask(http, "GET", "groups/failing/dlq")["messages"] == 0


def test_all_dead_letters_are_redriven_and_each_says_what_became_of_it(
    page: Page, bare: str, http: httpx.Client
) -> None:
    send(http, "broken", 3)
    taken = receive(http, "broken", "breaking", 3)
    letters = [{"receipt_handle": each["receipt_handle"]} for each in taken]
    settle = {"dead_letters": letters}
    ask(http, "POST", "topics/broken/groups/breaking/messages:settle", settle)
    operator = Operator(page, bare)
    operator.begin()
    operator.click("link", "Dead letters")
    operator.click("link", "breaking")
    operator.click("button", "Redrive … all 3")
    page.get_by_label("Letters a second, at most").fill("100")
    page.get_by_label("Type the name to confirm").fill("breaking")
    operator.click("button", "Redrive")
    expect(page.locator("main tbody .tag.good")).to_have_count(3, timeout=15_000)
    assert operator.clicks <= CLICKS_MAX
    assert len(receive(http, "broken", "breaking", 4)) == 3


def test_one_dead_letter_is_redriven_from_its_row(
    page: Page, bare: str, http: httpx.Client
) -> None:
    send(http, "torn", 2)
    taken = receive(http, "torn", "tearing", 2)
    reasons = ("no stock", "no such customer")
    letters = [
        {"receipt_handle": each["receipt_handle"], "reason": reason}
        for each, reason in zip(taken, reasons, strict=True)
    ]
    ask(http, "POST", "topics/torn/groups/tearing/messages:settle", {"dead_letters": letters})
    operator = Operator(page, bare)
    operator.begin()
    operator.click("link", "Dead letters")
    operator.click("link", "tearing")
    row = page.get_by_role("row").filter(has_text="no such customer")
    operator.click_on(row.get_by_role("link", name="Redrive …"))
    expect(page.get_by_text("1 dead letter is delivered to this group again")).to_be_visible()
    page.get_by_label("Type the name to confirm").fill("tearing")
    operator.click("button", "Redrive")
    expect(page.locator("main tbody .tag.good")).to_have_count(1, timeout=15_000)
    assert operator.clicks <= CLICKS_MAX
    (again,) = receive(http, "torn", "tearing", 2)
    assert again["message_id"] == taken[1]["message_id"]


def test_a_delayed_message_is_cancelled_and_another_delivered_now(
    page: Page, bare: str, http: httpx.Client
) -> None:
    ask(http, "PUT", "topics/later", {"queues": 1})
    for text in ("first", "second"):
        later = {"mq-keys": text, "mq-delay": "1h" if text == "first" else "2h"}
        http.post("/v1/topics/later/messages", content=text.encode(), headers=later)
    operator = Operator(page, bare)
    operator.begin()
    operator.click("link", "Delayed messages")
    operator.click_on(page.get_by_role("link", name="later").first)
    first = page.get_by_role("row").filter(has_text="first")
    operator.click_on(first.get_by_role("link", name="Cancel"))
    operator.click("button", "Cancel the message")
    assert operator.clicks <= CLICKS_MAX
    expect(page.get_by_role("status")).to_have_text("The message is cancelled.")
    expect(page.locator("main tbody tr")).to_have_count(1)
    handle = page.locator("input[name=handle]").first.input_value()
    page.get_by_role("button", name="Deliver now").click()
    expect(page.get_by_role("status")).to_have_text("The message is delivered.")
    where = f"{bare}/ui/delayed/later"
    for again in (  # what was on the page before
        page.request.post(f"{where}/deliver", form={"handle": handle}),
        page.request.post(f"{where}/cancel", form={"handle": handle}),
        page.request.get(f"{where}/cancel", params={"handle": handle}),
    ):
        assert (again.status, again.url) == (200, where)
        assert "The message no longer waits" in again.text()
    assert [each["text"] for each in receive(http, "later", "late", 8)] == ["second"]


def test_hanging_transactions_are_committed_and_rolled_back(
    page: Page, bare: str, http: httpx.Client
) -> None:
    ask(http, "PUT", "topics/paid", {"type": "transaction"})
    begun = []
    for text in ("good", "bad"):
        prepare = {"mq-transaction": "prepare; group=pay"}
        answer = http.post("/v1/topics/paid/messages", content=text.encode(), headers=prepare)
        begun.append(answer.json()["transaction_id"])
    for transaction, button, state in (
        (begun[0], "Commit: deliver the message", "committed"),
        (begun[1], "Roll back: drop the message", "rolled back"),
    ):
        operator = Operator(page, bare)
        operator.begin()
        operator.click("link", "Transactions")
        operator.click("link", transaction)
        expect(page.get_by_role("button", name=button)).to_be_disabled()
        page.get_by_label("Type the name to confirm").fill("pay")
        operator.click("button", button)
        assert operator.clicks <= CLICKS_MAX
        expect(page.locator("main .tag", has_text=state)).to_be_visible()
    assert [each["text"] for each in receive(http, "paid", "payers", 8)] == ["good"]


def test_a_client_with_an_odd_name_has_its_page(page: Page, bare: str, http: httpx.Client) -> None:
    odd = "shop/7 ../%2F ? #"
    ask(http, "PUT", "topics/known", {})
    receive = "/v1/topics/known/groups/oddly/messages:receive"
    http.post(receive, params={"client_id": odd}).raise_for_status()
    page.goto(f"{bare}/ui/clients?group=oddly")
    page.get_by_role("link", name=odd).click()
    expect(page.get_by_label("Client id")).to_have_value(odd)
    expect(page.get_by_role("heading", name="Consumes")).to_be_visible()
    page.get_by_label("Client id").fill("nobody")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("Nobody like that was heard of for ten minutes.")).to_be_visible()


def test_who_consumes_and_who_produces(page: Page, bare: str, http: httpx.Client) -> None:
    named = {"mq-client-id": "shop-7"}
    http.post("/v1/topics/known/messages", content=b"x", headers=named).raise_for_status()
    http.post("/v1/topics/known/groups/knowing/messages:receive?client_id=shop-7")
    page.goto(f"{bare}/ui/clients")
    page.get_by_label("Client id").fill("shop-7")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("heading", name="Consumes")).to_be_visible()
    expect(page.get_by_role("heading", name="Produces")).to_be_visible()
    page.get_by_role("link", name="knowing", exact=True).click()
    expect(page).to_have_title("knowing · Groups · Curlew")
