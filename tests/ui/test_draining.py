"""A shard is drained on the pages of two real nodes of two shards, and takes messages again."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.clients.browser import CLICKS_MAX, Operator, watched_page
from tests.support.metadata.databases import PostgresDatabases
from tests.support.nodes.free_ports import free_port
from tests.support.nodes.node import run_node
from tests.support.nodes.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.postgres]

PATIENCE_MS: Final = 30_000
DRAIN: Final = "nodes/shards/b/drain"


@pytest.fixture(scope="module")
def origin(
    tmp_path_factory: pytest.TempPathFactory, postgres_databases: PostgresDatabases
) -> Iterator[str]:
    """The node of the shard `a`; in `b` is a message that the group `billing` has not consumed."""
    root = tmp_path_factory.mktemp("draining")
    for name, text in ("secret", "5" * 64), ("database.url", postgres_databases.migrated()):
        (root / name).touch(0o600)
        (root / name).write_text(text)
    with ExitStack() as stack:
        url, _ = [
            stack.enter_context(
                run_node(
                    root / name,
                    *("--shard", name, "--database-url-file", str(root / "database.url")),
                    *("--cluster-listen", f"127.0.0.1:{free_port()}"),
                    *("--cluster-secret-file", str(root / "secret")),
                )
            ).url
            for name in "ab"
        ]
        wait_until(lambda: set(takes(url)) == {"a", "b"})
        topic = f"{url}/v1/topics/orders"
        httpx.put(topic, json={"queues": 2}, timeout=60).raise_for_status()
        httpx.post(f"{topic}/messages?queue_id=1", content=b"1", timeout=60).raise_for_status()
        got = httpx.post(f"{topic}/groups/billing/messages:receive?wait=10s", timeout=60)
        assert len(got.json()["messages"]) == 1, got.text
        yield url


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with watched_page(browser) as watched:
        watched.page.set_default_timeout(PATIENCE_MS)
        yield watched.page
        assert watched.policy_violations() == []


def takes(url: str) -> dict[str, Any]:
    """What each shard takes."""
    shards = httpx.get(f"{url}/v1/cluster", timeout=60).json()["shards"]
    return {each["name"]: each["takes"] for each in shards}


def confirmed(operator: Operator, button: str, told: str) -> None:
    """With its name typed."""
    page = operator.page
    form = page.locator("form").filter(has=page.get_by_role("button", name=button, exact=True))
    form.get_by_label("Type the name to confirm:").fill("b")
    operator.click("button", button)
    expect(page.get_by_role("status")).to_have_text(told)


def test_it_is_drained_its_keys_move_and_it_takes_messages_again(page: Page, origin: str) -> None:
    operator = Operator(page, origin)
    operator.begin()
    operator.click("link", "Nodes")
    operator.click("link", "Drain … b")
    expect(page.get_by_role("table", name="Not consumed")).to_contain_text("billing")
    told = "The shard “b” drains: messages without a key go to other shards."
    confirmed(operator, "Drain the shard", told)
    assert operator.clicks <= CLICKS_MAX
    wait_until(lambda: takes(origin)["b"] == "keyed")
    operator.click("link", "Drain … b")
    expect(page.locator("main")).to_contain_text("order and idempotence do not hold")
    told = "The keys of the shard “b” have moved: it takes nothing new."
    confirmed(operator, "Have keys move", told)
    wait_until(lambda: takes(origin)["b"] == "none")
    page.reload()
    expect(page.get_by_role("table", name="Shards")).to_contain_text("nothing new")
    events = page.get_by_role("table", name="What happened")
    expect(events).to_contain_text("its keys have moved: nothing new comes any more")
    operator.click("link", "Drain … b")
    expect(page.get_by_role("button", name="Drain the shard")).to_have_count(0)
    confirmed(operator, "Take messages again", "The shard “b” takes messages again.")
    wait_until(lambda: takes(origin)["b"] == "all")


def test_without_the_name_and_without_another_shard_nothing_is_done(
    page: Page, origin: str
) -> None:
    path = f"{origin}/ui/{DRAIN}"
    for name, status in ("", 409), ("a", 409):
        assert httpx.post(path, data={"typed": name}, timeout=60).status_code == status
    assert takes(origin)["b"] == "all"
    assert httpx.get(f"{origin}/ui/nodes/shards/none/drain").status_code == 404
    assert httpx.post(path, data={"typed": "b"}, timeout=60).status_code == 303
    try:
        wait_until(lambda: takes(origin)["b"] == "keyed")
        page.goto(f"{origin}/ui/nodes/shards/a/drain")
        expect(page.get_by_role("alert")).to_contain_text("no shard but 'a' takes new messages")
        expect(page.get_by_role("button", name="Drain the shard")).to_have_count(0)
    finally:
        httpx.delete(f"{origin}/v1/shards/b/drain", timeout=60).raise_for_status()
    wait_until(lambda: takes(origin)["b"] == "all")


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("keys", [None, False, True])
def test_the_page_is_whole_in_every_look(
    browser: Browser, origin: str, language: str, keys: bool | None
) -> None:
    if keys is not None:
        path = f"{origin}/v1/shards/b/drain"
        httpx.post(path, json={"keys": keys}, timeout=60).raise_for_status()
        wait_until(lambda: takes(origin)["b"] != "all")
    try:
        with watched_page(browser, inspect=True) as watched:
            for name, path in ("drain", DRAIN), ("shards", "nodes"):
                watched.page.goto(f"{origin}/ui/{path}?lang={language}")
                watched.check_every_look(f"{name}-{keys}-{language}")
    finally:
        httpx.delete(f"{origin}/v1/shards/b/drain", timeout=60).raise_for_status()
        wait_until(lambda: takes(origin)["b"] == "all")
