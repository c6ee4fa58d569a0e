"""What it takes another replica to lead: the leader of a full shard is killed.

    python -m benchmarks.cluster.take_over [--delayed 5000000] [--transactions 100000]
        [--groups 10000] [--replicas 3] [--sync-ms 0,1,5,10]

Fills a shard, kills the leader with SIGKILL while single synced sends go to the others, and says
how long behind the kill the first one was confirmed, and the first message delivered whose time
came meanwhile; both less the lease. The killed one comes back, and the next is killed while each
sync takes so much longer. Then that the last leader goes on with what was there. Last the same for
a cold start: all are killed, what was made of their logs (queues, index, timer log, checkpoint) is
thrown away, and they start over the whole log. Needs PostgreSQL.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Final

import httpx

from app.cluster import migrate
from app.cluster.replication.replica_state import Timing
from app.store import OsFiles
from app.store.replica.beginnings import forget_derived
from benchmarks.cluster.filling import (
    BODY,
    DELAYED_TOPIC,
    GROUPS_TOPIC,
    TOPIC,
    expect,
    fill_delayed,
    fill_groups,
    fill_transactions,
    group_name,
    sending,
    with_connection,
)
from benchmarks.cluster.loads import spent_s
from benchmarks.cluster.slow_disk import SYNC_MS
from benchmarks.load import Connection
from tests.support.cluster.three_processes import leads_all
from tests.support.metadata.postgres import PostgresServer
from tests.support.nodes.free_ports import free_port

LEASE_S: Final = Timing().lease_ms / 1_000
DUE_COLD_TOPIC: Final = "due-cold"
DUE_S: Final = 3.0
"""Behind the kill: nobody leads then."""
LOG_CACHE_MIB: Final = 1_024
"""Of all nodes together, what of their logs stays in memory."""
GIVEN_UP_S: Final = 1_800.0
IDLE_S: Final = 2.0
"""Nodes that take less than half a core for so long have nothing to do: 10,000 groups with open
deliveries cost their leader a third of one."""
_ADDRESS: Final = re.compile(r"page +(https?://\S+)/ui")
_PARTS: Final = re.compile(r"INFO \S+ (.* took .*)")


class Nodes:
    """Processes with a replica of one shard each, whose output goes to files."""

    def __init__(self, root: Path, database: str, replicas: int) -> None:
        self.root = root
        self.urls: dict[str, str] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._replicas = replicas
        self._ports: dict[str, tuple[int, int]] = {}
        private = (("secret", token_hex(32)), ("database.url", database), ("sync-ms", "0"))
        for name, text in private:
            (root / name).touch(0o600)
            (root / name).write_text(text)

    def start(self, *names: str) -> None:
        """Start, and wait until they answer. Who leads is not waited for."""
        for name in names:
            (self.root / f"{name}.log").unlink(missing_ok=True)
            port, cluster_port = self._ports.setdefault(name, (free_port(), free_port()))
            flags = [
                *("--port", str(port), "--data-dir", str(self.root / name), "--shard", "bench"),
                *("--replicas", str(self._replicas)),
                *("--database-url-file", str(self.root / "database.url")),
                *("--cluster-listen", f"127.0.0.1:{cluster_port}"),
                *("--cluster-secret-file", str(self.root / "secret")),
                *("--log-cache-mib", str(LOG_CACHE_MIB // self._replicas)),
            ]
            with (self.root / f"{name}.log").open("wb") as log:
                command = [sys.executable, "-m", "benchmarks.cluster.slow_disk", "dev", *flags]
                environment = {**os.environ, SYNC_MS: str(self.root / "sync-ms")}
                self._processes[name] = subprocess.Popen(
                    command, stdout=log, stderr=log, env=environment
                )
        for name in names:
            wait(f"{name} starts", lambda name=name: self._find_address(name))  # type: ignore[misc]

    def _find_address(self, name: str) -> bool:
        if self._processes[name].poll() is not None:
            raise RuntimeError(f"{name} has ended:\n{self.log(name)[-2_000:]}")
        if match := _ADDRESS.search(self.log(name)):
            self.urls[name] = match[1]
        return match is not None

    def log(self, name: str) -> str:
        """What it has printed since its start."""
        return (self.root / f"{name}.log").read_text()

    def kill(self, *names: str) -> None:
        """With SIGKILL; return when they are gone."""
        for name in names:
            self._processes[name].send_signal(signal.SIGKILL)
        for name in names:
            self._processes.pop(name).wait()
            self.urls.pop(name, None)

    def slow_syncs(self, longer_ms: float) -> None:
        """From now on, each sync of all nodes takes so much longer than the disk's."""
        (self.root / "sync-ms").write_text(str(longer_ms))

    def leader(self) -> str | None:
        """Who says that it leads, and that it counts all others in."""
        return next((name for name in self.urls if leads_all(self.figures(name))), None)

    def figures(self, name: str) -> str:
        """`/metrics`; empty where it does not answer."""
        with suppress(httpx.HTTPError):
            return httpx.get(f"{self.urls[name]}/metrics", timeout=30).text
        return ""

    def pid(self, name: str) -> int:
        """Of its process."""
        return self._processes[name].pid

    def resident_mib(self, name: str) -> float:
        """Memory of the process that is not of files."""
        pages = Path(f"/proc/{self._processes[name].pid}/statm").read_text().split()
        page_bytes = os.sysconf("SC_PAGE_SIZE")
        return (int(pages[1]) - int(pages[2])) * page_bytes / 2**20

    def tell_problems(self) -> None:
        """The last that each has printed."""
        for path in sorted(self.root.glob("*.log")):
            print(path.name, path.read_text()[-3_000:], sep="\n")

    def end(self) -> None:
        """Leave none behind."""
        self.kill(*list(self._processes))


def wait(what: str, condition: Callable[[], object], within_s: float = GIVEN_UP_S) -> None:
    """Look 50 times a second until it holds. Raises `RuntimeError`."""
    end = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"given up: {what}")
        time.sleep(0.02)


class Watch:
    """Sends to some nodes until one send is confirmed, and looks for a message that is due."""

    def __init__(self, urls: Sequence[str], began: float, topic: str) -> None:
        self.sent_s: float | None = None
        """Behind `began`, by `time.monotonic`."""
        self.delivered_s: float | None = None
        self._began = began
        self._topic = topic
        self._end = time.monotonic() + GIVEN_UP_S
        self._threads = [threading.Thread(target=self._send, args=(url,)) for url in urls]
        self._threads += [threading.Thread(target=self._look, args=(url,)) for url in urls]
        for each in self._threads:
            each.start()

    def _send(self, url: str) -> None:
        while self.sent_s is None and time.monotonic() < self._end:
            status = ask(url, "POST", sending(TOPIC), BODY)
            if status == 201 and self.sent_s is None:
                self.sent_s = time.monotonic() - self._began
            time.sleep(0.01)

    def _look(self, url: str) -> None:
        path = f"/v1/topics/{self._topic}/queues/0/messages?offset=0"
        while self.delivered_s is None and time.monotonic() < self._end:
            found = answer_of(url, path).get("messages")
            if found and self.delivered_s is None:
                self.delivered_s = time.monotonic() - self._began
            time.sleep(0.01)

    def wait(self) -> tuple[float, float]:
        """Seconds to the first confirmed send, and to the message that was due."""
        for each in self._threads:
            each.join()
        if self.sent_s is None or self.delivered_s is None:
            raise RuntimeError("given up: no send was confirmed, or nothing delivered")
        return self.sent_s, self.delivered_s


def ask(url: str, method: str, path: str, body: bytes = b"") -> int:
    """The status; 0 where there is no answer."""
    found: list[int] = []

    def exchange(connection: Connection) -> None:
        found.append(connection.exchange(connection.build(method, path, body))[0])

    with suppress(OSError):
        with_connection(url, exchange)
    return found[0] if found else 0


def answer_of(url: str, path: str) -> dict[str, object]:
    """Of a GET, as JSON; empty where it is refused."""
    with suppress(httpx.HTTPError, ValueError):
        found = httpx.get(url + path, timeout=30)
        if found.status_code == 200:
            answer: dict[str, object] = found.json()
            return answer
    return {}


class Kept:
    """What one thing of each kind is known by, to find it again."""

    def __init__(self, url: str, transaction: str, groups: int) -> None:
        self.groups = groups
        self.transaction = transaction
        path = f"/v1/topics/{DELAYED_TOPIC}/messages?queue_id=0&delay=1d"
        self.recall = json.loads(post(url, path))["recall_handle"]

    def check(self, url: str) -> None:
        """A delayed message can be listed and recalled, a transaction committed, groups go on."""
        scheduled = f"/v1/topics/{DELAYED_TOPIC}/scheduled"
        assert answer_of(url, f"{scheduled}?page_size=10")["messages"], "nothing is listed"
        assert ask(url, "DELETE", f"{scheduled}/{self.recall}") == 204, "no recall"
        assert ask(url, "POST", f"/v1/transactions/{self.transaction}:commit") == 200, "no commit"
        for number in {0, self.groups // 2, self.groups - 1}:
            path = f"/v1/topics/{GROUPS_TOPIC}/groups/{group_name(number)}/messages:receive"
            found = json.loads(post(url, f"{path}?max_messages=4", b""))["messages"]
            offsets = [each["queue_offset"] for each in found]
            assert offsets == [2, 3], f"{group_name(number)} got {offsets}"


def post(url: str, path: str, body: bytes = BODY, *head: str) -> bytes:
    """The answer; raises `RuntimeError` when it is a refusal."""
    found: list[bytes] = []
    with_connection(url, lambda to: found.append(expect(to, "POST", path, body, *head)))
    return found[0]


def fill(url: str, options: argparse.Namespace) -> Kept:
    """The shard, as wanted."""
    due = [due_topic(each) for each in options.sync_ms]
    for topic in (TOPIC, DELAYED_TOPIC, GROUPS_TOPIC, DUE_COLD_TOPIC, *due):
        settings = {"queues": 1, "flush": "async" if topic == DELAYED_TOPIC else "sync"}
        httpx.put(f"{url}/v1/topics/{topic}", json=settings, timeout=30).raise_for_status()
    began = time.monotonic()
    with ThreadPoolExecutor() as pool:
        delayed = pool.submit(fill_delayed, url, options.delayed, options.fill)
        groups = pool.submit(fill_groups, url, options.groups)
        transaction = fill_transactions(url, options.transactions)
        say("transactions", began)
        groups.result()
        say("groups", began)
        say(f"{delayed.result():,} delayed messages", began)
    kept = Kept(url, transaction, options.groups)
    wait("the list", lambda: answer_of(url, f"/v1/topics/{DELAYED_TOPIC}/scheduled?page_size=10"))
    say("all, read back", began)
    return kept


def due_topic(sync_ms: float) -> str:
    """Of one take-over."""
    return f"due-{sync_ms:g}"


def say(what: str, began: float) -> None:
    """How far the filling is."""
    print(f"  {what}: {time.monotonic() - began:.1f} s", flush=True)


def caught_up(nodes: Nodes) -> bool:
    """Whether all have the leader's log, and none has work to do any more."""
    leader = nodes.leader()
    if leader is None:
        return False
    lags = re.findall(r"^curlew_replica_lag_bytes\{.*\} (\S+)", nodes.figures(leader), re.MULTILINE)
    before = {name: spent_s(nodes.pid(name)) for name in nodes.urls}
    time.sleep(IDLE_S)
    is_idle = all(spent_s(nodes.pid(name)) - before[name] < IDLE_S / 2 for name in nodes.urls)
    return is_idle and all(float(lag) == 0 for lag in lags)


def killed(nodes: Nodes, leader: str, topic: str) -> tuple[float, float]:
    """Kill the leader; as `Watch.wait`."""
    due_ms = time.time_ns() // 1_000_000 + round(1_000 * DUE_S)
    post(nodes.urls[leader], f"{sending(topic)}&deliver_at_ms={due_ms}")
    nodes.kill(leader)
    return Watch(list(nodes.urls.values()), time.monotonic(), topic).wait()


def taken_over(nodes: Nodes, sync_ms: float) -> float:
    """Print what a take-over takes, with syncs so much slower; seconds to the message that was due,
    beyond the lease. The killed node is back, and all are in sync."""
    wait("all are in sync", lambda: caught_up(nodes))
    leader = nodes.leader()
    assert leader
    nodes.slow_syncs(sync_ms)
    sent_s, delivered_s = killed(nodes, leader, due_topic(sync_ms))
    print(f"take-over, each sync {sync_ms:g} ms longer:")
    print(f"  first send {sent_s:.2f} s, {sent_s - LEASE_S:.2f} s beyond the lease")
    print(f"  delayed {delivered_s:.2f} s, {delivered_s - LEASE_S:.2f} s beyond the lease")
    parts(nodes)
    nodes.slow_syncs(0)
    nodes.start(leader)
    sys.stdout.flush()
    return delivered_s - LEASE_S


def started_cold(nodes: Nodes) -> tuple[float, float]:
    """Kill all, and start them with nothing but their logs; as `Watch.wait`, since the start."""
    wait("a leader", lambda: any(leads(nodes, name) for name in nodes.urls))
    leader = next(name for name in nodes.urls if leads(nodes, name))
    due_ms = time.time_ns() // 1_000_000 + 2_000
    post(nodes.urls[leader], f"{sending(DUE_COLD_TOPIC)}&deliver_at_ms={due_ms}")
    names = list(nodes.urls)
    nodes.kill(*names)
    for name in names:
        forget_derived(OsFiles(nodes.root / name / "store"))
    began = time.monotonic()
    nodes.start(*names)
    return Watch(list(nodes.urls.values()), began, DUE_COLD_TOPIC).wait()


def leads(nodes: Nodes, name: str) -> bool:
    """Whether a node says so."""
    return (
        re.search(r"^curlew_replica_leading\{.*\} 1", nodes.figures(name), re.MULTILINE) is not None
    )


def parts(nodes: Nodes) -> None:
    """What the nodes say that things took, and their memory."""
    for name in nodes.urls:
        for line in _PARTS.findall(nodes.log(name)):
            print(f"  {name}: {line}")
        print(f"  {name}: {nodes.resident_mib(name):.0f} MiB of memory")


def go_on(what: str, options: argparse.Namespace) -> None:
    """Where it is to go by steps, wait for a line: others may be at work on the machine."""
    if options.steps:
        print(f"return to {what}", flush=True)
        sys.stdin.readline()


def measure(nodes: Nodes, options: argparse.Namespace) -> None:
    """Print the figures."""
    names = ["a", "b", "c"][: options.replicas]
    nodes.start(*names)
    wait("all are in sync", nodes.leader, 120)
    leader = nodes.leader()
    assert leader
    go_on("fill", options)
    kept = fill(nodes.urls[leader], options)
    wait("all are in sync", lambda: caught_up(nodes))
    go_on("measure", options)
    parts(nodes)
    beyond_s = [taken_over(nodes, each) for each in options.sync_ms]
    wait("all are in sync", lambda: caught_up(nodes))
    kept.check(next(iter(nodes.urls.values())))
    if options.cold:
        sent_s, cold_s = started_cold(nodes)
        print(f"cold start: first send {sent_s:.2f} s, delayed {cold_s:.2f} s")
        parts(nodes)
        print(f"take-over to cold start: {beyond_s[0] / cold_s:.3f}")


def _numbers(text: str) -> list[float]:
    return [float(each) for each in text.split(",")]


def main() -> None:
    """Fill, kill, measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delayed", type=int, default=5_000_000)
    parser.add_argument("--transactions", type=int, default=100_000)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--replicas", type=int, default=3, choices=(2, 3))
    parser.add_argument("--fill", type=float, default=900.0, help="seconds at most, for delayed")
    parser.add_argument("--sync-ms", type=_numbers, default=[0.0], help="one take-over for each")
    parser.add_argument("--steps", action="store_true", help="wait for a line before each part")
    parser.add_argument("--no-cold", dest="cold", action="store_false")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="curlew-take-over-"))
    server = PostgresServer.create()
    try:
        database = server.new_database()
        migrate(database)
        nodes = Nodes(root, database, options.replicas)
        try:
            measure(nodes, options)
        except BaseException:
            nodes.tell_problems()
            raise
        finally:
            nodes.end()
    finally:
        server.destroy()
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
