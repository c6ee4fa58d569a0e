"""The audit by pages, both ways, over HTTP and at `/ui`."""

import base64
import html
import re
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from tests.integration.secure.test_audit import entries, http, server
from tests.support.clients.wire import Served

__all__ = ["http", "server"]

pytestmark = pytest.mark.anyio


async def paged(
    http: httpx.AsyncClient, direction: str, token: str | None = None
) -> tuple[list[int], dict[str, Any]]:
    """The numbers of a page of three, and the whole of it."""
    query = {"direction": direction, "page_size": "3", "resource": "topic:pay*"}
    answer = await http.get(
        "/v1/audit", params={**query, **({"page_token": token} if token else {})}
    )
    found = answer.json()
    return [each["seq"] for each in found["entries"]], found


async def test_the_audit_is_paged_both_ways(http: httpx.AsyncClient) -> None:
    for number in range(8):
        await http.put(f"/v1/topics/pay-{number}", json={})
    forward = [each["seq"] for each in await entries(http, resource="topic:pay*")]
    token, pages = None, []
    while True:
        numbers, found = await paged(http, "backward", token)
        pages.append(numbers)
        assert (found["previous_page_token"] is None) == (token is None)
        token = found["next_page_token"]
        if token is None:
            break
    assert [number for page in pages for number in page] == forward[::-1]
    assert [len(page) for page in pages] == [3, 3, 2]
    numbers, back = await paged(http, "forward", found["previous_page_token"])
    assert numbers[::-1] == pages[1]
    again, _ = await paged(http, "backward", back["previous_page_token"])
    assert again == pages[2]
    numbers, back = await paged(http, "forward", back["next_page_token"])
    assert (numbers[::-1], back["next_page_token"]) == (pages[0], None)
    refused = await http.get("/v1/audit?direction=sideways")
    assert refused.status_code == 400


@pytest.mark.parametrize("direction", ["backward", "forward"])
async def test_the_way_back_from_an_empty_page_leaves_no_entry_out(
    server: Served, http: httpx.AsyncClient, direction: str
) -> None:
    """A token leads behind the last entry, once those behind it are gone."""
    for number in range(4):
        await http.put(f"/v1/topics/pay-{number}", json={})
    shown = await entries(http, resource="topic:pay*", direction=direction)
    _, first = await paged(http, direction)
    async with server.node.metadata._database.transaction() as connection:
        gone = text("DELETE FROM audit_entries WHERE seq = :seq")
        await connection.execute(gone, {"seq": shown[-1]["seq"]})
    numbers, empty = await paged(http, direction, first["next_page_token"])
    assert (numbers, empty["next_page_token"]) == ([], None)
    other = "forward" if direction == "backward" else "backward"
    numbers, _ = await paged(http, other, empty["previous_page_token"])
    assert numbers[::-1] == [each["seq"] for each in shown[:-1]]


async def test_the_page_shows_the_newest_first_and_goes_both_ways(http: httpx.AsyncClient) -> None:
    for number in range(120):
        await http.put(f"/v1/groups/g-{number:03}", json={})

    def shown(text: str) -> list[str]:
        return re.findall(r"group:g-(\d+)", text)

    def way(text: str, rel: str) -> str:
        (found,) = re.findall(rf'rel="{rel}" href="([^"]*)"', text)
        return html.unescape(found)

    expected = [f"{number:03}" for number in reversed(range(120))]
    where = "/ui/audit"
    texts = []
    for first in (0, 50, 100):
        text = (await http.get(where)).text
        texts.append(text)
        assert shown(text) == expected[first : first + 50]
        where = f"/ui/audit{way(text, 'next')}" if first < 100 else ""
    assert 'rel="next"' not in texts[2]
    assert 'rel="prev"' not in texts[0]
    text = (await http.get(f"/ui/audit{way(texts[2], 'prev')}")).text
    assert shown(text) == expected[50:100]
    text = (await http.get(f"/ui/audit{way(text, 'prev')}")).text
    assert shown(text) == expected[:50]
    assert 'rel="prev"' not in text


NOT_OURS = (
    *(b'[1e999,"a",1]', b'[1,"a",%d]' % (2**63), b'[%d,"a",1]' % (10**30), b"[" * 20_000),
    *(rb'[1,"\ud800",1]', rb'[1,"a\udfffb",1]'),
)
"""What a page token may hold that no page has given."""


async def test_it_is_read_by_page(http: httpx.AsyncClient) -> None:
    for number in range(7):
        await http.put(f"/v1/topics/t{number}", json={"queues": 1})
    seen: list[str] = []
    token = None
    while True:
        query: dict[str, Any] = {"page_size": 3, "resource": "topic:t*", "action": "CREATE"}
        query |= {"page_token": token} if token else {}
        page = await http.get("/v1/audit", params=query)
        seen += [each["resource"] for each in page.json()["entries"]]
        token = page.json()["next_page_token"]
        if token is None:
            break
    assert seen == [f"topic:t{number}" for number in range(7)]
    bad_ones: list[dict[str, Any]] = [
        *({"page_token": "x"}, {"page_size": 0}, {"page_size": 10**6}),
        *({"since_ms": "x"}, {"since_ms": 2**63}, {"since_ms": 10**30}, {"principal": "a\0b"}),
        *({"page_token": base64.urlsafe_b64encode(each).decode()} for each in NOT_OURS),
    ]
    for bad in bad_ones:
        assert (await http.get("/v1/audit", params=bad)).status_code == 400
    assert await entries(http, since_ms=10**15) == []
    assert await entries(http, principal="nobody") == []
