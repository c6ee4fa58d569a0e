"""The pages of three real nodes that have one shard in common: who leads it and who is in sync,
handing it over, and a node that dies while its page is open."""

import re
from collections.abc import Iterator
from typing import Any, Final

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.support.clients.browser import CLICKS_MAX, Operator, watched_page
from tests.support.cluster.three_processes import Shard, three_processes
from tests.support.metadata.databases import PostgresDatabases
from tests.support.nodes.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.postgres]

PATIENCE_MS: Final = 30_000
WAYS: Final = {"replicas": "nodes", "hand-over": "nodes/shards/orders/hand-over"}


@pytest.fixture(scope="module")
def shard(
    tmp_path_factory: pytest.TempPathFactory, postgres_databases: PostgresDatabases
) -> Iterator[Shard]:
    url = postgres_databases.migrated()
    with three_processes(tmp_path_factory.mktemp("replicas"), url) as started:
        httpx.post(f"{started.urls()[0]}/v1/topics/orders/messages", content=b"x" * 5_000)
        yield started


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with watched_page(browser) as watched:
        watched.page.set_default_timeout(PATIENCE_MS)
        yield watched.page
        assert watched.policy_violations() == []


def replicas(url: str) -> tuple[str, list[dict[str, Any]]]:
    """Who leads, and all."""
    (found,) = httpx.get(f"{url}/v1/cluster", timeout=60).json()["shards"]
    return found["leader"], found["replicas"]


def agreed_leader(shard: Shard) -> str:
    """Who leads, once all nodes have heard of the same one."""
    told: set[str] = set()

    def agree() -> bool:
        told.clear()
        told.update(replicas(url)[0] for url in shard.urls())
        return len(told) == 1

    wait_until(agree)
    return told.pop()


def followers(url: str) -> list[str]:
    leader, found = replicas(url)
    return [each["node_id"] for each in found if each["node_id"] != leader]


def row_of(page: Page, node: str) -> Locator:
    table = page.get_by_role("table", name="Replicas of orders")
    return table.get_by_role("row").filter(has_text=node)


def test_a_shard_is_handed_over_in_a_few_clicks(page: Page, shard: Shard) -> None:
    origin = shard.urls()[0]
    leader = agreed_leader(shard)
    to = followers(origin)[0]
    operator = Operator(page, origin)
    operator.begin()
    operator.click("link", "Nodes")
    expect(row_of(page, leader)).to_contain_text("leads")
    for node in followers(origin):
        expect(row_of(page, node)).to_contain_text("in sync")
    operator.click("link", "Hand over … orders")
    page.get_by_label(to).check()
    operator.click("button", "Hand the shard over")
    expect(page.get_by_role("status")).to_have_text(f"The node {to} leads the shard “orders” now.")
    assert operator.clicks <= CLICKS_MAX
    expect(row_of(page, to)).to_contain_text("leads")
    told = f"The shard is handed over to {to}, as somebody without a key has asked."
    expect(page.get_by_role("table", name="What happened")).to_contain_text(told)
    shard.in_sync()


def test_it_is_handed_over_without_scripts_to_whoever_has_most(
    browser: Browser, shard: Shard
) -> None:
    origin = shard.urls()[1]
    before = agreed_leader(shard)
    with watched_page(browser, scripts=False) as watched:
        watched.page.goto(f"{origin}/ui/{WAYS['hand-over']}")
        watched.page.get_by_role("button", name="Hand the shard over").click()
        told = watched.page.get_by_role("status")
        expect(told).to_contain_text(re.compile(r"The node \w+ leads the shard “orders” now\."))
        after = agreed_leader(shard)
        assert after != before
        assert after in told.inner_text()
    shard.in_sync()


def test_who_leads_already_is_told_so(page: Page, shard: Shard) -> None:
    origin = shard.urls()[0]
    leader = agreed_leader(shard)
    answer = httpx.post(f"{origin}/ui/{WAYS['hand-over']}", data={"node": leader}, timeout=60)
    page.goto(f"{origin}/ui/")
    assert answer.status_code == 303
    assert "already" in answer.headers["set-cookie"]
    refused = httpx.post(f"{origin}/ui/{WAYS['hand-over']}", data={"node": "nobody"}, timeout=60)
    assert refused.status_code == 409
    assert "the node has no replica of it" in refused.text
    assert httpx.get(f"{origin}/ui/nodes/shards/none/hand-over").status_code == 404


def test_a_replica_begins_anew_when_the_name_is_typed(page: Page, shard: Shard) -> None:
    origin = shard.urls()[0]
    shard.in_sync()
    leader = agreed_leader(shard)
    node = followers(origin)[0]
    operator = Operator(page, origin)
    operator.begin()
    operator.click("link", "Nodes")
    operator.click("link", f"Take out or begin anew … {node}")
    form = page.locator("form").filter(has=page.get_by_role("button", name="Throw its data away"))
    form.get_by_label("Keep its log").check()
    form.get_by_label("Type the name to confirm:").fill(node)
    operator.click("button", "Throw its data away")
    told = f"The replica of {node} begins anew; this page shows when it is in sync."
    expect(page.get_by_role("status")).to_have_text(told)
    assert operator.clicks <= CLICKS_MAX
    shard.in_sync()
    page.goto(f"{origin}/ui/nodes/shards/orders/replicas/{leader}")
    refused = page.get_by_role("alert")
    expect(refused).to_have_count(2)
    expect(refused.first).to_contain_text("it leads")
    expect(page.get_by_role("button", name="Take it out")).to_have_count(0)


def test_a_replica_is_not_taken_out_by_another_name(page: Page, shard: Shard) -> None:
    origin = shard.urls()[0]
    node = followers(origin)[0]
    way = f"{origin}/ui/nodes/shards/orders/replicas/{node}"
    refused = httpx.post(f"{way}/remove", data={"typed": "another"}, timeout=60)
    assert (refused.status_code, "nothing was done" in refused.text) == (409, True)
    unknown = f"{origin}/ui/nodes/shards/orders/replicas/nobody"
    assert httpx.get(unknown, timeout=60).status_code == 404
    page.goto(way)
    left = page.locator("main").get_by_text(re.compile("Replicas that are left: "))
    expect(left).not_to_contain_text(node)
    assert node in [each["node_id"] for each in replicas(origin)[1]]


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("leads", [True, False])
def test_the_page_of_a_replica_is_whole_in_every_look(
    browser: Browser, shard: Shard, language: str, leads: bool
) -> None:
    origin = shard.urls()[0]
    node = agreed_leader(shard) if leads else followers(origin)[0]
    with watched_page(browser, inspect=True) as watched:
        watched.page.goto(f"{origin}/ui/nodes/shards/orders/replicas/{node}?lang={language}")
        watched.check_every_look(f"replica-{leads}-{language}")


def test_a_replica_is_taken_out_and_another_takes_its_place(page: Page, shard: Shard) -> None:
    origin = shard.nodes[shard.leader()].url
    node = followers(origin)[-1]
    url = next(each["url"] for each in replicas(origin)[1] if each["node_id"] == node)
    operator = Operator(page, origin)
    operator.begin()
    operator.click("link", "Nodes")
    operator.click("link", f"Take out or begin anew … {node}")
    form = page.locator("form").filter(has=page.get_by_role("button", name="Take it out"))
    form.get_by_label("Type the name to confirm:").fill(node)
    operator.click("button", "Take it out")
    told = f"The node {node} has no replica of the shard “orders” any more."
    expect(page.get_by_role("status")).to_have_text(told)
    assert operator.clicks <= CLICKS_MAX
    wait_until(lambda: node not in [each["node_id"] for each in replicas(origin)[1]])
    out = next(name for name, each in shard.nodes.items() if each.url == url)
    shard.stop(out)
    shard.start(out)  # there is a place, and its data is left
    shard.in_sync()


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_pages_are_whole_in_every_look(
    browser: Browser, shard: Shard, name: str, language: str
) -> None:
    with watched_page(browser, inspect=True) as watched:
        watched.page.goto(f"{shard.urls()[0]}/ui/{WAYS[name]}?lang={language}")
        watched.check_every_look(f"{name}-{language}")


def test_each_node_shows_its_own_disk_and_log(page: Page, shard: Shard) -> None:
    leads = shard.leader()
    for name, node in shard.nodes.items():
        page.goto(f"{node.url}/ui/nodes")
        shown = page.locator("dl.figures").all_inner_texts()
        for figure in ("Log", "Disk free", "Not yet on the medium", "A sync takes"):
            assert figure.upper() in "\n".join(shown).upper(), (name, figure)
        assert ("A send takes" in page.locator("main").inner_text()) == (name == leads)


def test_a_node_that_dies_is_seen_on_the_open_page(page: Page, shard: Shard) -> None:
    leads = shard.leader()
    dies, stays = (name for name in shard.nodes if name != leads)
    known = {each["url"]: each["node_id"] for each in replicas(shard.nodes[leads].url)[1]}
    dead = known.get(shard.nodes[dies].url)
    origin = shard.nodes[stays].url
    page.goto(f"{origin}/ui/nodes")
    row = row_of(page, dead or shard.nodes[dies].url)
    expect(row).to_contain_text("in sync")
    shard.kill(dies)
    expect(row).to_contain_text("out of sync", timeout=PATIENCE_MS)  # without a click
    expect(row).to_contain_text("it is not connected")
    told = page.get_by_role("table", name="What happened")
    expect(told).to_contain_text(f"No longer in sync: {dead}", timeout=PATIENCE_MS)
    page.goto(f"{origin}/ui/{WAYS['hand-over']}")
    expect(page.get_by_label(dead or "")).to_be_disabled()
    page.goto(f"{origin}/ui/nodes")
    shard.start(dies)
    expect(row.locator(".tag.good")).to_have_text("in sync", timeout=PATIENCE_MS)
    shard.in_sync()


def test_the_page_of_a_node_that_dies_says_so_and_goes_on_later(page: Page, shard: Shard) -> None:
    leads = shard.leader()
    dies = next(name for name in shard.nodes if name != leads)
    page.goto(f"{shard.nodes[dies].url}/ui/nodes")
    expect(page.locator("[data-live=on]")).to_have_count(1)
    shard.kill(dies)
    expect(page.locator("#lost")).to_be_visible(timeout=PATIENCE_MS)
    shard.start(dies)
    expect(page.locator("#lost")).to_be_hidden(timeout=PATIENCE_MS)
    shard.in_sync()
