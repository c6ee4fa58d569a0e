"""Transactions and their checker, the control plane, and the fixtures for other people's tests."""

import asyncio
import threading

import pytest
from curlew_client import (
    AsyncClient,
    Client,
    CurlewError,
    HalfMessage,
    Message,
    Received,
    Worker,
)
from curlew_client.consuming.checks import verdict_of
from curlew_client.documents.topics import Topic
from curlew_client.errors import NoReply, TopicNotFound
from curlew_client.testing import TestNode, node_command

from tests.support.clients.scripted_node import answered, broken, scripted
from tests.support.nodes.waiting import wait_until

PREPARED = answered(202, {"status": "SEND_OK", "transaction_id": "T1", "state": "PREPARED"})
DECIDED = answered(200, {"transaction_id": "T1", "state": "COMMITTED"})


def texts(curlew: Client, topic: str) -> list[str]:
    return [each["text"] for each in curlew.admin.browse_messages(topic)["messages"]]


def failing(curlew: Client, topic: str) -> None:
    with curlew.transaction(topic, group="pay") as tx:
        tx.send("never")
        raise OSError("the database is gone")


def test_leaving_well_commits_and_an_exception_rolls_back(curlew: Client) -> None:
    curlew.admin.put_topic("tx-blocks", queues=1)
    with curlew.transaction("tx-blocks", group="pay") as tx:
        tx.send("paid", tag="t", unique_id="u-1", flag=7)
        assert texts(curlew, "tx-blocks") == []
        with pytest.raises(ValueError, match="sent already"):
            tx.send("twice")
    (shown,) = curlew.admin.browse_messages("tx-blocks")["messages"]
    known = {"text": "paid", "tag": "t", "unique_id": "u-1", "flag": 7}
    assert {**shown, **known} == shown
    with pytest.raises(OSError, match="the database is gone"):
        failing(curlew, "tx-blocks")
    assert texts(curlew, "tx-blocks") == ["paid"]
    with curlew.transaction("tx-blocks", group="pay"):
        pass  # nothing was sent, and there is nothing to decide


def test_a_transaction_with_asyncio(curlew_node: TestNode, curlew: Client) -> None:
    curlew.admin.put_topic("tx-async", queues=1)

    async def pay() -> None:
        async with (
            AsyncClient(curlew_node.url) as client,
            client.transaction("tx-async", group="pay", check_after="1h") as tx,
        ):
            await tx.send({"id": 1})

    asyncio.run(pay())
    assert [each["body"] for each in curlew.admin.browse_messages("tx-async")["messages"]] == [
        {"id": 1}
    ]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_checker_decides_what_nobody_decided(
    curlew_node: TestNode, curlew: Client, is_async: bool
) -> None:
    topic = f"tx-checked-{is_async}"
    curlew.admin.put_topic(topic, queues=1)
    for body in ("good", "bad"):
        curlew.transaction(topic, group=topic, check_after="1s").send(body)
    asked: list[str] = []
    worker = Worker(curlew_node.url)

    def check(half: HalfMessage) -> bool:
        asked.append(half.text)
        return half.text == "good"

    async def check_async(half: HalfMessage) -> bool:
        return check(half)

    worker.checker(topic)(check_async if is_async else check)
    with pytest.raises(ValueError, match="has a checker"):
        worker.checker(topic)
    with worker:
        wait_until(lambda: len(asked) == 2 and texts(curlew, topic) == ["good"])
    rows = curlew.admin.request("GET", "/v1/transactions", params={"producer_group": topic})
    assert {each["state"] for each in rows["transactions"]} == {"COMMITTED", "ROLLED_BACK"}


@pytest.mark.parametrize(
    ("returned", "verdict"),
    [(True, "commit"), ("commit", "commit"), (False, "rollback"), (None, None)],
)
def test_verdicts(returned: object, verdict: str | None) -> None:
    assert verdict_of(returned) == verdict
    with pytest.raises(TypeError, match="a checker returns True"):
        verdict_of(17)


def test_a_commit_without_an_answer_is_repeated_and_then_left_to_the_checker() -> None:
    with scripted(PREPARED, broken, DECIDED) as node, Client(node.url) as curlew:
        with curlew.transaction("orders", group="pay") as tx:
            tx.send(b"x")
        lines = [each.line for each in node.sends]
        assert lines[1:] == ["POST /v1/transactions/T1:commit HTTP/1.1"] * 2
        assert "mq-producer-id" not in node.sends[0].headers
    with scripted(PREPARED, *[broken] * 5) as node, Client(node.url) as curlew:
        with pytest.raises(OSError, match="gone") as caught:
            failing_with(curlew, OSError("gone"))
        assert "the checker will" in caught.value.__notes__[0]


def failing_with(curlew: Client, error: Exception) -> None:
    with curlew.transaction("orders", group="pay") as tx:
        tx.send(b"x")
        raise error


def test_the_control_plane(curlew: Client) -> None:
    admin = curlew.admin
    made = admin.put_topic("admin-topic", queues=2, flush="async")
    assert (made["queues"], admin.get_topic("admin-topic")["flush"]) == (2, "async")
    assert "admin-topic" in [each["name"] for each in admin.list_topics(prefix="admin-")]
    admin.put_group("admin-group", max_attempts=1)
    curlew.send_batch("admin-topic", [Message("a"), Message("b")], queue_id=0)
    (message, _) = curlew.receive_batch("admin-topic", group="admin-group", wait="5s")
    message.dead_letter("no")
    (letter,) = admin.list_dead_letters("admin-group")["messages"]
    assert letter["reason"] == "no"
    assert admin.plan_redrive("admin-group", all=True)["matched"] == 1
    assert admin.purge_dead_letters("admin-group", all=True)["removed"] == 1
    assert admin.pause_group("admin-group")["paused"]
    assert not admin.resume_group("admin-group")["paused"]
    admin.reset_group_offsets("admin-group", "admin-topic", to="latest")
    assert admin.get_lag("admin-group")["ready"] == 0
    assert "admin-group" in [each["name"] for each in admin.list_groups()]
    assert admin.get_group("admin-group")["max_attempts"] == 1
    assert admin.get_topic_stats("admin-topic")["depth"] == 2
    assert admin.get_limits()
    assert admin.get_readiness()
    assert admin.delete_topic("admin-topic", dry_run=True)["dry_run"]
    admin.delete_group("admin-group")
    admin.delete_topic("admin-topic")
    with pytest.raises(TopicNotFound):
        admin.get_topic("admin-topic")


def test_the_control_plane_with_asyncio(curlew_node: TestNode) -> None:
    async def work() -> list[Topic]:
        async with AsyncClient(curlew_node.url) as client:
            await client.admin.put_topic("admin-async", queues=1)
            return await client.admin.list_topics(prefix="admin-async")

    assert [each["name"] for each in asyncio.run(work())] == ["admin-async"]


def test_one_way_waits_for_nothing_and_has_no_numbers(curlew: Client) -> None:
    with scripted() as node, Client(node.url) as client:
        client.send_oneway("orders", b"x")
        wait_until(lambda: len(node.sends) == 1)
        headers = node.sends[0].headers
        assert headers["mq-one-way"] == "true"
        assert "mq-producer-id" not in headers
    curlew.admin.put_topic("one-way", queues=1)
    for number in range(10):
        curlew.send_oneway("one-way", f"{number}")
    wait_until(lambda: len(texts(curlew, "one-way")) == 10)


def test_batches_carry_ids_and_flags(curlew: Client) -> None:
    curlew.admin.put_topic("ids", queues=1)
    curlew.send_batch("ids", [Message("framed", unique_id="u-1", flag=-5)])
    curlew.send_batch("ids", [Message("keyed", unique_id="u-2", flag=6, sharding_key="k")])
    shown = {
        each["unique_id"]: each["flag"] for each in curlew.admin.browse_messages("ids")["messages"]
    }
    assert shown == {"u-1": -5, "u-2": 6}
    for wrong in ({"unique_id": "a b"}, {"flag": 2**31}):
        with pytest.raises(ValueError, match=r"unique_id is|flag is"):
            curlew.send("ids", b"x", **wrong)


def test_a_request_gets_its_reply(curlew_node: TestNode, curlew: Client) -> None:
    curlew.admin.put_topic("questions", queues=1)
    worker = Worker(curlew)

    @worker.consumer("questions", group="answers")
    def answer(message: Received[None]) -> None:
        curlew.reply(message, {"said": message.text}, tag="t")

    with worker:
        reply = curlew.request("questions", "how much?", wait="30s", keys=["q-1"])
        assert (reply.json(), reply.tag) == ({"said": "how much?"}, "t")

        async def ask() -> str:
            async with AsyncClient(curlew_node.url) as client:
                return (await client.request("questions", "and now?", wait=30)).text

        assert asyncio.run(ask()) == '{"said":"and now?"}'
    with pytest.raises(NoReply) as caught:
        curlew.request("questions", "nobody there?", wait="0.1s")
    assert caught.value.fields["message_id"]


def test_a_missing_server_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CURLEW_COMMAND", "python -m app.cli")
    assert node_command() == ["python", "-m", "app.cli"]
    monkeypatch.delenv("CURLEW_COMMAND")
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(FileNotFoundError, match="install the server"):
        node_command()


def test_a_checker_that_fails_is_asked_again(curlew_node: TestNode, curlew: Client) -> None:
    """The error is told of, and nothing is decided."""
    curlew.admin.put_topic("tx-failing", queues=1)
    curlew.transaction("tx-failing", group="tx-failing", check_after="1s").send("x")
    asked = threading.Event()
    worker = Worker(curlew_node.url)

    @worker.checker("tx-failing")
    def check(half: HalfMessage) -> bool:
        asked.set()
        raise CurlewError("my database is gone")

    with worker:
        assert asked.wait(60)
    rows = curlew.admin.request("GET", "/v1/transactions", params={"producer_group": "tx-failing"})
    assert [each["state"] for each in rows["transactions"]] == ["PREPARED"]
