"""Who begins to lead has what a broker begins with: it reads nothing of it again."""

from pathlib import Path

import pytest

from app.broker.delays.timer_index import TimerIndex
from app.broker.transactions.half_reader import HalfReader
from app.broker.warm_parts import WarmParts
from app.domain.message import StoredMessage
from app.store import ReadResult
from tests.support.cluster.three_nodes import ServedNode
from tests.support.cluster.three_replicas import TOPIC, shard_of, three_replicas, until

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]
DELAYED, PREPARED = 30, 10


async def fill(leader: ServedNode) -> tuple[str, str]:
    """A recall handle, and the id of a transaction."""
    await leader.client.put(TOPIC, json={"queues": 1})
    for _ in range(DELAYED - 1):
        await leader.client.post(f"{TOPIC}/messages?delay=1d", content=b"later")
    delayed = await leader.client.post(f"{TOPIC}/messages?delay=1d", content=b"later")
    headers = {"MQ-Transaction": "prepare; group=shop; check-after=1h"}
    for _ in range(PREPARED - 1):
        await leader.client.post(f"{TOPIC}/messages", content=b"half", headers=headers)
    half = await leader.client.post(f"{TOPIC}/messages", content=b"half", headers=headers)
    for body in (b"one", b"two"):
        await leader.client.post(f"{TOPIC}/messages", content=body)
    received = await leader.client.post(f"{TOPIC}/groups/billing/messages:receive?max_messages=1")
    handle = received.json()["messages"][0]["receipt_handle"]
    assert (await leader.client.delete(f"/v1/receipts/{handle}")).status_code == 204
    return delayed.json()["recall_handle"], half.json()["transaction_id"]


def warm_of(served: ServedNode) -> WarmParts:
    replica = shard_of(served)._replica
    assert replica is not None
    warm = replica._runner._owner._warm
    assert isinstance(warm, WarmParts)
    return warm


def has_all(warm: WarmParts) -> bool:
    is_begun = warm.progress.state.queues.get(("billing", "orders", 0)) is not None
    return (
        (warm.timers.log.count, len(warm.transactions.halves)) == (DELAYED, PREPARED)
        and is_begun
        and warm.progress.state.queues["billing", "orders", 0].progress.committed == 1
    )


async def test_a_follower_goes_on_with_what_it_has_kept_up(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        leader = await replicas.led()
        recall, transaction = await fill(leader)
        followers = [each for each in replicas.nodes.values() if each is not leader]
        await until(lambda: all(has_all(warm_of(each)) for each in followers))
        read: list[object] = []
        take, read_halves = TimerIndex._take, HalfReader.read

        def noted_take(index: TimerIndex, record: StoredMessage) -> None:
            read.append(record)
            take(index, record)

        async def noted_read(some: HalfReader, at: int, end: int, count: int) -> ReadResult:
            read.append(at)
            return await read_halves(some, at, end, count)

        monkeypatch.setattr(TimerIndex, "_take", noted_take)
        monkeypatch.setattr(HalfReader, "read", noted_read)
        await replicas.kill(leader.name)
        served = await replicas.led()
        listed = await served.client.get(f"{TOPIC}/scheduled?page_size=100")
        assert len(listed.json()["messages"]) == DELAYED
        assert read == []
        scheduled = f"{TOPIC}/scheduled/{recall}"
        assert (await served.client.delete(scheduled)).status_code == 204
        decided = await served.client.post(f"/v1/transactions/{transaction}:commit")
        assert decided.status_code == 200, decided.text
        received = await served.client.post(f"{TOPIC}/groups/billing/messages:receive")
        texts = [each["text"] for each in received.json()["messages"]]
        assert texts[0] == "two"
