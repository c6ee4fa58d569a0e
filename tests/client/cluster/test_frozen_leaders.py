"""A leader that is frozen under a poll: it takes what it is sent, and answers nothing. The program
hears nothing of it: another node is asked the same poll within the client's timeout.

Three processes, each with a shard, and a PostgreSQL.
"""

from collections import Counter
from typing import Any

import httpx
import pytest
from curlew_client import Client
from curlew_client.aio.pool import AsyncPool
from curlew_client.assigned.pull_consumer import PullConsumer
from curlew_client.options import Node

from tests.client.cluster.test_killed_leaders import QUEUES, Cluster, cluster
from tests.history.worker import TOPIC
from tests.support.nodes.waiting import wait_until

__all__ = ["cluster"]

pytestmark = [pytest.mark.crash, pytest.mark.postgres]

GROUP = "billing"


@pytest.fixture
def polled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The node of each poll."""
    found: list[str] = []
    exchange = AsyncPool.exchange

    async def noted(pool: AsyncPool, node: Node, data: bytes, *until_s: Any) -> Any:
        if b"members:poll" in data:
            found.append(node.url)
        return await exchange(pool, node, data, *until_s)

    monkeypatch.setattr(AsyncPool, "exchange", noted)
    return found


def fill(curlew: Client, sent: list[str], queues: list[int]) -> None:
    for queue_id in queues:
        sent.append(f"{queue_id}.{len(sent)}")
        curlew.send(TOPIC, sent[-1], queue_id=queue_id)


def leaders(cluster: Cluster) -> dict[int, str]:
    rows = httpx.get(f"{cluster.url('a')}/v1/topics/{TOPIC}/route").json()["queues"]
    return {row["queue_id"]: row["leader"] for row in rows}


def read(consumer: PullConsumer, got: Counter[str], count: int) -> None:
    def is_enough() -> bool:
        got.update(message.text for message in consumer.poll("1s"))
        return got.total() >= count

    wait_until(is_enough, within_s=90)


def test_a_leader_that_is_frozen_costs_the_program_no_poll(
    cluster: Cluster, polled: list[str]
) -> None:
    urls = {cluster.url(name): name for name in "abc"}
    led_by, every = leaders(cluster), list(range(QUEUES))
    sent: list[str] = []
    got: Counter[str] = Counter()
    with Client(list(urls)) as curlew, curlew.pull_consumer(group=GROUP) as consumer:
        fill(curlew, sent, every)
        consumer.subscribe(TOPIC)
        read(consumer, got, len(sent))
        consumer.poll("100ms")
        frozen = polled[-1]
        assert led_by[consumer.assignment[0].queue_id] == frozen
        fill(curlew, sent, every)  # some are read at the frozen leader, when it has thawed
        of_others = [queue_id for queue_id in every if led_by[queue_id] != frozen]
        got_before = got.total()
        cluster.freeze(urls[frozen])
        try:
            polled.clear()
            read(consumer, got, got_before + len(of_others))
            assert polled[0] == frozen
            assert polled[1] != frozen
            fill(curlew, sent, of_others)
            polled.clear()
            read(consumer, got, got_before + 2 * len(of_others))
            assert frozen not in polled
        finally:
            cluster.thaw(urls[frozen])
        fill(curlew, sent, every)
        read(consumer, got, len(sent))
        consumer.commit()
        committed = {queue_id: consumer.committed(TOPIC, queue_id) for queue_id in every}
    assert got == Counter(sent)
    ends = Counter(int(body.partition(".")[0]) for body in sent)
    assert committed == dict(ends)
