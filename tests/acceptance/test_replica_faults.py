"""Three processes of one shard on bad days: a full disk, a frozen leader, a database that is away,
a clock that is off.

A sender runs all the while. What was confirmed is there, once, and in its order; what was refused
as `not_stored` is not.
"""

import os
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import psycopg
import pytest

from app.cluster import migrate
from app.cluster.replication.replica_state import Timing
from app.domain.limits import MIB
from app.store.lifecycle.retention_policy import REFUSE_RATIO
from tests.crash.sweeps.disks import (
    DROP_JOURNAL,
    EXT4_ORDERED,
    Disk,
    fill,
    mounted_disk,
    mounted_tmpfs,
    need,
    room,
)
from tests.support.cluster.three_processes import (
    NAMES,
    TOPIC,
    Sender,
    Shard,
    check,
    outcome,
    stored,
    three_processes,
)
from tests.support.metadata.databases import PostgresDatabases
from tests.support.metadata.postgres import PostgresServer
from tests.support.nodes.fork_server import RETENTION_SECONDS
from tests.support.nodes.waiting import wait_until

pytestmark = pytest.mark.postgres

OFTEN = {RETENTION_SECONDS: "0.5"}
"""A leader looks at its disk so often."""
LEASE_S = Timing().lease_ms / 1_000
PAYMENTS = "/v1/topics/payments"


@pytest.fixture
def shard(tmp_path: Path, postgres_databases: PostgresDatabases) -> Iterator[Shard]:
    with three_processes(tmp_path, postgres_databases.migrated()) as made:
        yield made


@pytest.fixture
def small_disks(tmp_path: Path, postgres_databases: PostgresDatabases) -> Iterator[Shard]:
    """Each of the nodes has a disk of its own."""
    need()
    with ExitStack() as stack:
        for name in NAMES:
            stack.enter_context(mounted_tmpfs(96 * MIB, tmp_path / name))
        url, size = postgres_databases.migrated(), ("--segment-mib", "8")
        yield stack.enter_context(three_processes(tmp_path, url, *size, environment=OFTEN))


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[dict[str, Disk]]:
    """Of each node one that can fail."""
    need(EXT4_ORDERED)
    with ExitStack() as stack:
        made = {}
        for name in NAMES:
            directory = tmp_path / f"disk-{name}"
            directory.mkdir()
            made[name] = stack.enter_context(mounted_disk(EXT4_ORDERED, directory))
            (tmp_path / name).symlink_to(made[name].root)
        yield made


def of_node(shard: Shard, name: str) -> Path:
    """A file that fills the disk of a node."""
    return shard.nodes[name].data_dir / "other"


def nearly_fill(path: Path) -> None:
    """Up to where messages are refused, and a little further."""
    room(path)
    usage = shutil.disk_usage(path.parent)
    with path.open("wb") as file:
        os.posix_fallocate(
            file.fileno(), 0, round(usage.total * (REFUSE_RATIO + 0.01)) - usage.used
        )


def send_one(shard: Shard, name: str) -> httpx.Response:
    return httpx.post(f"{shard.nodes[name].url}{TOPIC}/messages?queue_id=0", content="-1")


def readiness(shard: Shard, name: str) -> tuple[int, list[str]]:
    """The status and the reasons."""
    answer = httpx.get(f"{shard.nodes[name].url}/readyz")
    return answer.status_code, [each["code"] for each in answer.json()["reasons"]]


def store_times(url: str) -> list[int]:
    """Of the messages in the queue, in its order."""
    found: list[int] = []
    while True:
        path = f"{TOPIC}/queues/0/messages?offset={len(found)}&max_messages=100"
        messages = httpx.get(f"{url}{path}").json()["messages"]
        if not messages:
            return found
        found += [each["store_time_ms"] for each in messages]


def silence_s(shard: Shard, name: str) -> float:
    """For how long a node has heard nothing of the database."""
    figures = httpx.get(f"{shard.nodes[name].url}/metrics").text.splitlines()
    (age,) = [each for each in figures if each.startswith("curlew_policy_age_seconds ")]
    return float(age.split()[1])


@pytest.mark.powerloss
def test_a_leader_whose_disk_is_full_hands_over(small_disks: Shard) -> None:
    shard = small_disks
    with Sender(shard.urls) as sender:
        sender.goes_on()
        full = shard.leader()
        fill(of_node(shard, full))
        wait_until(lambda: shard.leader() != full)
        sender.goes_on()
        assert "REPLICA_FULL" in shard.nodes[full].log.read_text()
        of_node(shard, full).unlink()
        shard.in_sync()
        sender.goes_on()
    check(shard, sender)
    assert not sender.unknown


@pytest.mark.powerloss
def test_a_leader_with_room_takes_nothing_while_replicas_that_are_needed_are_full(
    small_disks: Shard,
) -> None:
    """So they keep room for what the log has to say before anything may be deleted."""
    shard = small_disks
    leader = shard.leader()
    full = [name for name in NAMES if name != leader]
    for name in full:
        nearly_fill(of_node(shard, name))
    wait_until(lambda: send_one(shard, leader).status_code == 507)
    refused = send_one(shard, leader)
    assert (refused.json()["code"], outcome(refused)) == ("DISK_FULL", "not_stored")
    assert shard.leader() == leader
    of_node(shard, full[0]).unlink()
    wait_until(lambda: send_one(shard, leader).status_code == 201)
    of_node(shard, full[1]).unlink()
    shard.in_sync()


@pytest.mark.powerloss
def test_where_all_disks_are_full_sends_are_refused_and_reads_go_on(small_disks: Shard) -> None:
    shard = small_disks
    with Sender(shard.urls) as sender:
        sender.goes_on()
    for name in NAMES:
        fill(of_node(shard, name))
    wait_until(lambda: send_one(shard, "a").status_code == 507)
    refused = send_one(shard, "b")
    assert (refused.json()["code"], outcome(refused)) == ("DISK_FULL", "not_stored")
    found = [number for number in stored(shard.nodes["c"].url) if number >= 0]
    assert found == sender.confirmed
    for name in NAMES:
        of_node(shard, name).unlink()
    wait_until(lambda: send_one(shard, "a").status_code == 201)
    shard.in_sync()


@pytest.mark.powerloss
def test_a_leader_whose_disk_fails_is_replaced_and_comes_back(
    disks: dict[str, Disk], tmp_path: Path, postgres_databases: PostgresDatabases
) -> None:
    url = postgres_databases.migrated()
    with three_processes(tmp_path, url, "--segment-mib", "5") as shard:
        with Sender(shard.urls) as sender:
            sender.goes_on()
            failed = shard.leader()
            disks[failed].cut_power(DROP_JOURNAL)
            wait_until(lambda: shard.leader() != failed)
            sender.goes_on()
            shard.kill(failed)
            disks[failed].restart()
            shard.start(failed)
            shard.in_sync()
            sender.goes_on()
        check(shard, sender)


def test_a_leader_that_was_frozen_acknowledges_nothing_of_its_own(shard: Shard) -> None:
    """Requests have waited in its sockets while another one was elected."""
    frozen = shard.leader()
    node = shard.nodes[frozen]
    assert httpx.put(f"{node.url}{PAYMENTS}", json={"queues": 1}).status_code == 201

    def send(number: int) -> str:
        path = f"{PAYMENTS}/messages?queue_id=0"
        try:
            return outcome(httpx.post(f"{node.url}{path}", content=str(number), timeout=60))
        except httpx.HTTPError:
            return "unknown"

    with Sender(shard.urls) as sender, ThreadPoolExecutor(8) as pool:
        sender.goes_on()
        node.process.send_signal(signal.SIGSTOP)
        waiting = [pool.submit(send, number) for number in range(8)]
        shard.leader(but=frozen)
        node.process.send_signal(signal.SIGCONT)
        said = [each.result() for each in waiting]
        shard.in_sync()
        sender.goes_on()
    check(shard, sender)
    for url in shard.urls():
        found = stored(url, PAYMENTS)
        assert len(found) == len(set(found))
        assert {number for number, each in enumerate(said) if each == "stored"} <= set(found)
        assert not {number for number, each in enumerate(said) if each == "not_stored"} & set(found)


def test_without_the_database_the_leader_goes_on(
    shard: Shard, postgres_server: PostgresServer
) -> None:
    leader = shard.leader()
    with Sender(shard.urls) as sender:
        sender.goes_on()
        postgres_server.stop()
        try:
            wait_until(lambda: silence_s(shard, leader) > LEASE_S)
            sender.goes_on()
            assert shard.leader() == leader
        finally:
            postgres_server.start()
        shard.in_sync()
        sender.goes_on()
    check(shard, sender)
    assert not sender.unknown
    assert shard.leader() == leader


def test_nobody_is_elected_before_the_database_is_back(
    shard: Shard, postgres_server: PostgresServer
) -> None:
    leader = shard.leader()
    with Sender(shard.urls) as sender:
        sender.goes_on()
        postgres_server.stop()
        try:
            shard.kill(leader)
            left = list(shard.nodes.values())
            wait_until(
                lambda: all(
                    httpx.get(f"{node.url}/readyz", timeout=30).status_code == 503 for node in left
                )
            )
            refused = send_one(shard, next(iter(shard.nodes)))
            assert (refused.status_code, outcome(refused)) == (503, "not_stored")
            confirmed = len(sender.confirmed)
        finally:
            postgres_server.start()
        shard.leader()
        sender.goes_on()
        assert len(sender.confirmed) > confirmed
        shard.start(leader)
        shard.in_sync()
    check(shard, sender)


@pytest.fixture
def own_shard(tmp_path: Path, own_postgres_server: PostgresServer) -> Iterator[Shard]:
    """With a database that the test may replace."""
    url = own_postgres_server.new_database()
    migrate(url)
    with three_processes(tmp_path, url) as made:
        yield made


def fail_over(shard: Shard, sender: Sender) -> None:
    """Another one leads, in an epoch that was not before."""
    killed = shard.leader()
    shard.kill(killed)
    sender.goes_on()
    shard.start(killed)
    shard.in_sync()


def test_a_database_of_before_learns_from_the_leader(
    own_shard: Shard, own_postgres_server: PostgresServer
) -> None:
    """It was restored from a copy, or a standby that lagged has taken its place."""
    shard, server = own_shard, own_postgres_server
    with Sender(shard.urls) as sender:
        sender.goes_on()
        server.keep_copy("before")
        kept = epoch_of(server)
        fail_over(shard, sender)
        leader, epoch = shard.leader(), epoch_of(server)
        assert kept < epoch
        server.bring_copy_back("before")  # the leader may write its row back at once
        wait_until(lambda: epoch_of(server) == epoch)
        sender.goes_on()
        assert shard.leader() == leader
        fail_over(shard, sender)
    check(shard, sender)


def test_nobody_leads_by_a_database_of_before(
    own_shard: Shard, own_postgres_server: PostgresServer
) -> None:
    """No leader lives that could tell it; the newest copy ends that."""
    shard, server = own_shard, own_postgres_server
    with Sender(shard.urls) as sender:
        sender.goes_on()
        server.keep_copy("before")
        fail_over(shard, sender)
        fail_over(shard, sender)
    for name in NAMES:
        shard.kill(name)
    server.keep_copy("newest")
    server.bring_copy_back("before")
    for name in NAMES:
        shard.start(name)
    wait_until(lambda: all(is_regressed(shard, name) for name in NAMES))
    refused = send_one(shard, "a")
    assert (refused.status_code, outcome(refused)) == (503, "not_stored")
    server.bring_copy_back("newest")
    shard.in_sync()
    check(shard, sender)


def epoch_of(server: PostgresServer) -> int:
    """As the database has it."""
    with psycopg.connect(server.url("test_1")) as connection:
        ((epoch,),) = connection.execute("SELECT epoch FROM shards").fetchall()
    return int(epoch)


def is_regressed(shard: Shard, name: str) -> bool:
    return "METADATA_REGRESSED" in shard.asked(name, "GET", "/readyz").text


@pytest.mark.parametrize("ahead_ms", [10_000, -10_000])
def test_a_node_whose_clock_is_off_leads_nothing(shard: Shard, ahead_ms: int) -> None:
    off = shard.leader()
    with Sender(shard.urls) as sender:
        sender.goes_on()
        shard.clocks[off].set_ahead(ahead_ms)
        wait_until(lambda: shard.leader() != off)
        second = shard.leader()
        wait_until(lambda: readiness(shard, off) == (503, ["CLOCK_APART"]))
        (third,) = set(NAMES) - {off, second}
        for name in (second, third):
            assert readiness(shard, name) == (200, [])
        assert "CLOCK_APART" in shard.nodes[off].log.read_text()
        sender.goes_on()
        assert len(sender.unknown) <= 1, "the one that was under way"
        shard.in_sync()
        shard.kill(second)
        assert shard.leader() == third
        sender.goes_on()
        shard.clocks[off].set_ahead(0)
        wait_until(lambda: readiness(shard, off) == (200, []))
        assert shard.leader() == third
        shard.start(second)
        shard.in_sync()
        sender.goes_on()
    check(shard, sender)
    for url in shard.urls():
        times = store_times(url)
        assert times == sorted(times)
