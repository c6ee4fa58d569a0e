"""A load of producers and consumers with faults, recorded for the checker.

Processes of their own, so that a consumer can be stopped past its leases (SIGSTOP) and a node
killed (SIGKILL) in the middle of anything. The node's wall clock is stepped by libfaketime; leases
and all times in the history are on the monotonic clock, which is left alone.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Final

from tests.history.events import (
    DeadLetters,
    Drained,
    Event,
    NodeDied,
    Received,
    Settled,
    decode_events,
)
from tests.history.worker import GROUP, TOPIC, Client, as_int, as_list, delivered_of
from tests.support.nodes.free_ports import free_port
from tests.support.nodes.node import ROOT, RunningNode, start_node

INVISIBLE_MS: Final = 1_000
MAX_ATTEMPTS: Final = 4
RETRY_DELAYS: Final = ("50ms", "200ms", "400ms")
QUEUES: Final = 4
STOP_SECONDS: Final = 60.0
DRAIN_SECONDS: Final = 60.0
EMPTY_POLLS: Final = 2
"""A poll waits longer than any lease or retry delay, so two empty ones say that it is all."""

FAKETIME: Final = "*/faketime/libfaketimeMT.so.1"
"""Below /usr/lib; `tests/install_servers.sh` sees that it is there."""


class Load:
    """One node and its clients over a directory."""

    def __init__(
        self, directory: Path, *, order: str, stepped_clock: bool, auto_create_groups: bool
    ) -> None:
        self._directory = directory
        self._auto_create_groups = auto_create_groups
        self._order = order
        self._clock = directory / "clock" if stepped_clock else None
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        self._events: list[Event] = []
        if self._clock is not None:
            self.step_clock("+0")
        self._port = free_port()
        self._node = self._start()
        self._client = Client(self._port)
        self._make_topic()

    def _start(self) -> RunningNode:
        environment = {"CURLEW_AUTO_CREATE_TOPICS": "false"}
        if not self._auto_create_groups:
            environment["CURLEW_AUTO_CREATE_GROUPS"] = "false"
        if self._clock is not None:
            environment |= {
                "LD_PRELOAD": str(next(Path("/usr/lib").glob(FAKETIME))),
                "FAKETIME_TIMESTAMP_FILE": str(self._clock),
                "FAKETIME_CACHE_DURATION": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
        return start_node(
            self._directory / "data", "--port", str(self._port), environment=environment
        )

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
        return f"http://127.0.0.1:{self._port}"

    # --- workers

    def work(self, role: str, name: str, module: str = "tests.history.worker") -> None:
        """Start a worker."""
        arguments = [role, self._port, self._file(name), name, len(self._workers), INVISIBLE_MS]
        self._workers[name] = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)], cwd=ROOT
        )

    def _file(self, name: str) -> Path:
        return self._directory / f"{name}.jsonl"

    def recorded(self) -> int:
        """Lines that the workers have written so far."""
        return sum(
            self._file(name).read_bytes().count(b"\n")
            for name in self._workers
            if self._file(name).exists()
        )

    def so_far(self, *names: str) -> list[Event]:
        """What these workers, or all, have written so far."""
        return [
            event
            for name in names or self._workers
            if self._file(name).exists()
            for event in decode_events(self._file(name).read_bytes())
        ]

    def stop_past_lease(self, name: str) -> None:
        """Freeze a worker until every lease that it holds is over."""
        process = self._workers[name]
        os.kill(process.pid, signal.SIGSTOP)
        try:
            frozen_s = monotonic()
            # Others go on meanwhile; their progress tells that time has passed for the node, too.
            while monotonic() - frozen_s < 2 * INVISIBLE_MS / 1_000:
                self._client.call("GET", "/healthz")
        finally:
            os.kill(process.pid, signal.SIGCONT)

    def end_workers(self, *names: str) -> None:
        """Let them finish their request and end; all of them without names."""
        for name in names or tuple(self._workers):
            process = self._workers[name]
            if process.poll() is None:
                process.terminate()
            assert process.wait(STOP_SECONDS) == 0, f"worker {name} failed"

    # --- faults

    def kill_node(self) -> None:
        """kill -9, and start it again on the same port."""
        began_s = monotonic()
        self._node.kill()
        self._close_node()
        self._client.close()
        self._node = self._start()
        self._events.append(NodeDied(began_s, monotonic()))

    def step_clock(self, offset: str) -> None:
        """Set the node's wall clock to `offset` from the machine's, such as "+3600"."""
        assert self._clock is not None
        new = self._clock.with_suffix(".new")
        new.write_text(offset)
        new.replace(self._clock)

    # --- the end

    def drain(self) -> None:
        """Take everything that is left and ack it, until nothing comes any more."""
        empty = 0
        deadline_s = monotonic() + DRAIN_SECONDS
        path = f"/v1/topics/{TOPIC}/groups/{GROUP}/messages"
        while empty < EMPTY_POLLS:
            assert monotonic() < deadline_s, "the group does not come to rest"
            began_s = monotonic()
            wish = {"max_messages": 64, "wait": 1.5 * INVISIBLE_MS / 1_000, "invisible_ms": 5_000}
            answer = self._client.call("POST", f"{path}:receive", wish)
            assert answer.status == 200, answer
            messages = delivered_of(answer)
            self._events.append(Received(began_s, monotonic(), "ok", "drain", 5.0, messages))
            empty = 0 if messages else empty + 1
            if messages:
                self._ack(path, [message.handle for message in messages])

    def _ack(self, path: str, handles: list[str]) -> None:
        began_s = monotonic()
        answer = self._client.call("POST", f"{path}:ack", {"receipt_handles": handles})
        assert answer.status == 200, answer
        self._events += [Settled(began_s, monotonic(), "ok", "ack", handle) for handle in handles]

    def events(self) -> list[Event]:
        """Everything that was seen, with the dead letters and the end."""
        letters: list[tuple[str, int]] = []
        cursor = ""
        began_s = monotonic()
        while True:
            url = f"/v1/groups/{GROUP}/dlq/messages?page_size=1000{cursor}"
            answer = self._client.call("GET", url)
            assert answer.status == 200, answer
            rows = as_list(answer.document["messages"])
            letters += [(str(row["text"]), as_int(row["attempts"])) for row in rows]
            if "next_cursor" not in answer.document:
                break
            cursor = f"&cursor={answer.document['next_cursor']}"
        found = [*self._events, DeadLetters(began_s, monotonic(), letters)]
        found.append(Drained(began_s, monotonic()))
        return found + self.so_far()

    def close(self) -> None:
        """End everything."""
        for process in self._workers.values():
            if process.poll() is None:
                process.kill()
                process.wait(STOP_SECONDS)
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
) -> Iterator[Load]:
    load = Load(
        directory,
        order=order,
        stepped_clock=stepped_clock,
        auto_create_groups=auto_create_groups,
    )
    try:
        yield load
    finally:
        load.close()
