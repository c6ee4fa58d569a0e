"""A load of producers and consumers with faults, recorded for the checker.

Processes of their own, so that a consumer can be stopped past its leases (SIGSTOP) and a node
killed (SIGKILL) in the middle of anything. The node's wall clock is stepped by libfaketime; leases
and all times in the history are on the monotonic clock, which is left alone.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Final

import httpx

from tests.crash.sweeps.disks import fill
from tests.history.ending import dead_letters, drain
from tests.history.events import Drained, Event, NodeDied
from tests.history.worker import GROUP, KEY, TOPIC, Client
from tests.history.workers import INVISIBLE_MS, Workers
from tests.support.nodes.fork_server import RETENTION_SECONDS
from tests.support.nodes.free_ports import free_port
from tests.support.nodes.node import RunningNode, start_node
from tests.support.nodes.waiting import wait_until

MAX_ATTEMPTS: Final = 4
RETRY_DELAYS: Final = ("50ms", "200ms", "400ms")
QUEUES: Final = 4

FAKETIME: Final = "*/faketime/libfaketimeMT.so.1"
"""Below /usr/lib; `tests/install_servers.sh` sees that it is there."""


class Load:
    """One node and its clients over a directory."""

    def __init__(
        self,
        directory: Path,
        *,
        order: str,
        stepped_clock: bool,
        auto_create_groups: bool,
        disk: Path | None,
    ) -> None:
        self.data_dir = (disk or directory) / "data"
        self._key: str | None = None
        self._disk = disk
        self._auto_create_groups = auto_create_groups
        self._order = order
        self._clock = directory / "clock" if stepped_clock else None
        self._workers = Workers(directory)
        self._events: list[Event] = []
        if self._clock is not None:
            self.step_clock("+0")
        self.port = free_port()
        self._node = self._start()
        self._client = Client(self.port)
        self._make_topic()

    def _start(self) -> RunningNode:
        environment = {"CURLEW_AUTO_CREATE_TOPICS": "false"}
        if self._disk is not None:
            environment[RETENTION_SECONDS] = "0.5"  # how often the node looks for room
        if not self._auto_create_groups:
            environment["CURLEW_AUTO_CREATE_GROUPS"] = "false"
        if self._clock is not None:
            environment |= {
                "LD_PRELOAD": str(next(Path("/usr/lib").glob(FAKETIME))),
                "FAKETIME_TIMESTAMP_FILE": str(self._clock),
                "FAKETIME_CACHE_DURATION": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
        return start_node(self.data_dir, "--port", str(self.port), environment=environment)

    def _make_topic(self) -> None:
        topic = {"queues": QUEUES, "flush": "async"}
        assert self._client.call("PUT", f"/v1/topics/{TOPIC}", topic).status == 201
        group = {
            "order": self._order,
            "max_attempts": MAX_ATTEMPTS,
            "retry_policy": {"customized": list(RETRY_DELAYS)},
            "invisible_ms": INVISIBLE_MS,
        }
        assert self._client.call("PUT", f"/v1/groups/{GROUP}", group).status == 201

    @property
    def url(self) -> str:
        """Of the node, in all its lives."""
        return f"http://127.0.0.1:{self.port}"

    def http(self) -> httpx.Client:
        """A client of the node, with the load's key."""
        headers = {} if self._key is None else {"Authorization": f"Bearer {self._key}"}
        return httpx.Client(base_url=self.url, headers=headers)

    def sign_in(self, key: str) -> None:
        """The node asks for keys: show this one, also in the workers that start from now on."""
        self._key = key
        self._client.close()
        self._client = Client(self.port, key)

    # --- workers

    def work(
        self,
        role: str,
        name: str,
        module: str = "tests.history.worker",
        *,
        port: int | None = None,
    ) -> None:
        """Start a worker. `port`: of what stands before the node."""
        prefix = () if self._key is None else ("env", f"{KEY}={self._key}")
        self._workers.start(role, name, port or self.port, module, prefix)

    def recorded(self) -> int:
        """Lines that the workers have written so far."""
        return self._workers.recorded()

    def so_far(self, *names: str) -> list[Event]:
        """What these workers, or all, have written so far."""
        return self._workers.so_far(*names)

    def stop_past_lease(self, name: str) -> None:
        """Freeze a worker until every lease that it holds is over."""
        process_id = self._workers.pid(name)
        os.kill(process_id, signal.SIGSTOP)
        try:
            frozen_s = monotonic()
            # Others go on meanwhile; their progress tells that time has passed for the node, too.
            while monotonic() - frozen_s < 2 * INVISIBLE_MS / 1_000:
                self._client.call("GET", "/healthz")
        finally:
            os.kill(process_id, signal.SIGCONT)

    def end_workers(self, *names: str) -> None:
        """Let them finish their request and end; all of them without names."""
        self._workers.end(*names)

    # --- faults

    def kill_node(self) -> None:
        """kill -9, and start it again on the same port."""
        began_s = monotonic()
        self._node.kill()
        self._close_node()
        self._client.close()
        self._node = self._start()
        self._events.append(NodeDied(began_s, monotonic()))

    def restart_node(self) -> None:
        """SIGTERM, in the middle of what it does, and start it again on the same port. A death for
        the judge: what was under way may be begun anew."""
        began_s = monotonic()
        self._node.stop()
        self._close_node()
        self._client.close()
        self._node = self._start()
        self._events.append(NodeDied(began_s, monotonic()))

    def freeze_node(self, seconds: float) -> None:
        """SIGSTOP for so long, and let it go on."""
        frozen_s = monotonic()
        self._node.process.send_signal(signal.SIGSTOP)
        try:
            wait_until(lambda: monotonic() - frozen_s > seconds)
        finally:
            self._node.process.send_signal(signal.SIGCONT)

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """The node's disk is full, and it says so; at the end there is room again."""
        assert self._disk is not None
        filler = self._disk / "filler"
        fill(filler)
        wait_until(self._is_refused_for_room, within_s=60)
        try:
            yield
        finally:
            filler.unlink()
        wait_until(lambda: not self._is_refused_for_room(), within_s=60)

    def _is_refused_for_room(self) -> bool:
        answer = self._client.call("GET", "/readyz")
        degraded = answer.document.get("degraded", [])
        assert isinstance(degraded, list)
        return any(each["code"] == "DISK_FULL" for each in degraded)

    def step_clock(self, offset: str) -> None:
        """Set the node's wall clock to `offset` from the machine's, such as "+3600"."""
        assert self._clock is not None
        new = self._clock.with_suffix(".new")
        new.write_text(offset)
        new.replace(self._clock)

    # --- the end

    def drain(self) -> None:
        """Take everything that is left and ack it, until nothing comes any more."""
        self._events += drain(self._client)

    def events(self) -> list[Event]:
        """Everything that was seen, with the dead letters and the end."""
        letters = dead_letters(self._client)
        return [*self._events, letters, Drained(letters.began_s, monotonic()), *self.so_far()]

    def close(self) -> None:
        """End everything."""
        self._workers.kill()
        self._client.close()
        if self._node.process.poll() is None:
            self._node.kill()
        self._close_node()

    def _close_node(self) -> None:
        assert self._node.process.stdout is not None
        self._node.process.stdout.close()


@contextmanager
def running_load(
    directory: Path,
    *,
    order: str,
    stepped_clock: bool = False,
    auto_create_groups: bool = True,
    disk: Path | None = None,
) -> Iterator[Load]:
    """`disk`: a small one for the data, so that it can be filled."""
    load = Load(
        directory,
        order=order,
        stepped_clock=stepped_clock,
        auto_create_groups=auto_create_groups,
        disk=disk,
    )
    try:
        yield load
    finally:
        load.close()
