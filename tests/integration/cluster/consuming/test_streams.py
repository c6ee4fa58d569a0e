"""A topic whose queues are in several shards is followed in all of them, through any node."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.domain.handles.cursors import decode_cursor
from tests.support.cluster.three_nodes import ServedNode, start_node
from tests.support.nodes.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

STREAM = "/v1/topics/orders/stream"
LINES = {"accept": "application/x-ndjson"}


async def send(node: ServedNode, queue_id: int, text: str, **headers: str) -> None:
    path = f"/v1/topics/orders/messages?queue_id={queue_id}"
    sent = await node.client.post(path, content=text, headers=headers)
    assert sent.status_code == 201, sent.text


async def fill(nodes: list[ServedNode]) -> None:
    """Three messages in each queue."""
    for queue_id in range(3):
        for number in range(3):
            await send(nodes[0], queue_id, f"{queue_id}.{number}")


async def lines_of(node: ServedNode, query: str, **headers: str) -> list[dict[str, Any]]:
    answer = await node.client.get(STREAM + query, headers={**LINES, **headers})
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines() if line]


def texts(lines: list[dict[str, Any]]) -> list[str]:
    return [each["text"] for each in lines if "text" in each]


async def test_any_node_follows_all_queues(nodes: list[ServedNode]) -> None:
    await fill(nodes)
    expected = [f"{queue_id}.{number}" for queue_id in range(3) for number in range(3)]
    for node in nodes:
        found = await lines_of(node, "?at=earliest&max_messages=9")
        assert sorted(texts(found)) == expected
        for queue_id in range(3):  # in order in each
            own = [each for each in texts(found) if each.startswith(f"{queue_id}.")]
            assert own == sorted(own)
        end = found[-1]["end"]
        assert end["reason"] == "message_limit"
        assert decode_cursor("orders", end["cursor"]) == [3, 3, 3]


async def test_each_cursor_goes_on_behind_its_message_at_any_node(nodes: list[ServedNode]) -> None:
    await fill(nodes)
    found = await lines_of(nodes[0], "?at=earliest&max_messages=9")
    messages = [each for each in found if "text" in each]
    for number, each in enumerate(messages):
        node = nodes[number % 3]
        left = len(messages) - number - 1
        query = f"?cursor={each['cursor']}&max_messages={left}" if left else "?duration=50ms"
        headers = {} if left else {"last-event-id": each["cursor"]}
        rest = await lines_of(node, query, **headers)
        assert sorted(texts(rest)) == sorted(texts(messages[number + 1 :]))


async def test_events_have_the_cursor_of_all_queues_as_their_id(nodes: list[ServedNode]) -> None:
    await fill(nodes)
    query = "?tail=1&max_messages=3&filter=*"
    answer = await nodes[1].client.get(STREAM + query)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert "mq-partial" not in answer.headers
    events = answer.text.split("\n\n")
    given = [each.split("\n") for each in events if each.startswith("id: ")]
    found = [json.loads(data.removeprefix("data: "))["text"] for _, data in given]
    assert sorted(found) == ["0.2", "1.2", "2.2"]
    cursor = given[-1][0].removeprefix("id: ")
    assert decode_cursor("orders", cursor) == [3, 3, 3]
    assert '"cursor"' not in given[0][1]
    assert events[-2].startswith(f"event: end\nid: {cursor}\n")


async def test_what_is_sent_while_it_is_open_comes_from_every_shard(
    nodes: list[ServedNode],
) -> None:
    async with nodes[2].client.stream("GET", f"{STREAM}?max_messages=3", headers=LINES) as answer:
        lines = answer.aiter_lines()
        cursor = await _next(lines)
        assert decode_cursor("orders", cursor["cursor"]) == [0, 0, 0]
        for queue_id in range(3):
            await send(nodes[0], queue_id, f"late {queue_id}")
        found = [each async for line in lines if line and "text" in (each := json.loads(line))]
    assert sorted(texts(found)) == ["late 0", "late 1", "late 2"]


async def _next(lines: AsyncIterator[str]) -> dict[str, Any]:
    async for line in lines:
        if line:
            found: dict[str, Any] = json.loads(line)
            return found
    raise AssertionError("the stream has ended")


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("?at=nowhere", 400, None),
        ("?cursor=c1.AAAA", 400, "ILLEGAL_OFFSET"),
        ("?at=earliest&tail=3", 400, "ILLEGAL_OFFSET"),
        ("?offset=7", 416, "OFFSET_OUT_OF_RANGE"),
        ("?filter=a||", 400, "ILLEGAL_FILTER_EXPRESSION"),
        ("?max_messages=0", 400, None),
        ("?unknown=1", 400, None),
    ],
)
async def test_what_is_not_well_is_refused_as_one_shard_does(
    nodes: list[ServedNode], query: str, status: int, code: str | None
) -> None:
    answer = await nodes[0].client.get(STREAM + query)
    alone = await nodes[0].client.get(STREAM + query, headers={"MQ-Forward": "no"})
    assert (answer.status_code, answer.json()["code"]) == (alone.status_code, alone.json()["code"])
    assert answer.status_code == status, answer.text
    assert code in (None, answer.json()["code"])


async def test_a_shard_that_goes_away_is_told_and_goes_on_when_it_is_back(
    nodes: list[ServedNode], tmp_path: Any, url: str
) -> None:
    await fill(nodes)
    config = nodes[2].node.config
    async with nodes[0].client.stream(
        "GET", f"{STREAM}?at=earliest&max_messages=11", headers=LINES
    ) as answer:
        lines = answer.aiter_lines()
        found = [await _next(lines) for _ in range(9)]
        await nodes[2].stop()
        while "partial" not in (found := [*found, await _next(lines)])[-1]:
            pass
        assert found[-1] == {"partial": ["c"]}
        await send(nodes[0], 0, "meanwhile")
        while "text" not in (found := [*found, await _next(lines)])[-1]:
            pass
        assert found[-1]["text"] == "meanwhile"
        assert decode_cursor("orders", found[-1]["cursor"]) == [4, 3, 3]
        nodes[2] = await start_node(
            tmp_path, url, "c", port=config.port, cluster_listen=config.cluster_listen
        )
        await send(nodes[2], 2, "back")
        found += [json.loads(line) async for line in lines if line]
    assert {"partial": []} in found
    assert texts(found).count("back") == 1
    assert len(set(texts(found))) == len(texts(found)) == 11
    assert found[-1]["end"]["reason"] == "message_limit"


async def test_a_shard_that_is_away_at_the_beginning_is_named(nodes: list[ServedNode]) -> None:
    await fill(nodes)
    await nodes[2].stop()
    found = await nodes[0].client.get(f"{STREAM}?at=earliest&max_messages=6", headers=LINES)
    assert json.loads(found.headers["mq-partial"]) == ["c"]
    lines = [json.loads(line) for line in found.text.splitlines() if line]
    assert lines[0] == {"partial": ["c"]}
    assert len(texts(lines)) == 6
    # Where its queue ends nobody knows, so no cursor could say where to go on.
    refused = await nodes[0].client.get(f"{STREAM}?max_messages=1", headers=LINES)
    assert (refused.status_code, refused.json()["code"]) == (503, "SHARD_UNAVAILABLE")


async def test_it_ends_with_the_topic_with_its_time_and_with_its_node(
    nodes: list[ServedNode],
) -> None:
    await fill(nodes)
    found = await lines_of(nodes[0], "?tail=1&duration=300ms")
    assert len(texts(found)) == 3
    assert found[-1]["end"]["reason"] == "time_limit"
    async with nodes[1].client.stream("GET", STREAM, headers=LINES) as answer:
        lines = answer.aiter_lines()
        await _next(lines)
        assert (await nodes[0].client.delete("/v1/topics/orders")).status_code == 204
        for each in nodes:
            await each.node.metadata.refresh()
        ends = [json.loads(line) async for line in lines if line]
    assert ends[-1]["end"]["reason"] == "topic_deleted"


async def test_a_client_that_leaves_is_followed_by_no_shard(nodes: list[ServedNode]) -> None:
    async with nodes[0].client.stream("GET", STREAM, headers=LINES) as answer:
        await _next(answer.aiter_lines())
        assert [each.node.broker.streams.open_count for each in nodes] == [1, 1, 1]
    await until(lambda: not any(each.node.broker.streams.open_count for each in nodes))
