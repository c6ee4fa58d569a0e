"""What an open overview costs a node: Chromium has it open, and the node's processor time counts.

In turns with the same node by itself, so that the machine's pace is the same for both. The first
load of the page counts, as do the events that keep it live.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import httpx
from playwright.sync_api import Page

from benchmarks.row import Row
from tests.support.clients.browser import CHROMIUM, chromium
from tests.support.nodes.node import run_node

OPEN_S: Final = 60.0
"""Of each: with the page, and without."""
TURNS: Final = 3


class Cost(NamedTuple):
    """Shares of a core that the node takes."""

    idle: float
    """By itself."""
    busy: float
    """With an open overview."""


def processor_s(pid: int) -> float:
    """Of the process, from /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def open_overview(url: str, pid: int, seconds: float) -> Cost:
    """What the overview of the node at `url`, which has the process id `pid`, costs in so many
    seconds."""
    idle = busy = 0.0
    with chromium() as browser:
        page = browser.new_page()
        for _ in range(TURNS):
            idle += _spent(pid, page, "about:blank", seconds / TURNS)
            busy += _spent(pid, page, f"{url}/ui/", seconds / TURNS)
            page.goto(f"{url}/ui/")
            page.wait_for_selector("html[data-live=on]")  # it was live, and no page of an error
    return Cost(idle / seconds, busy / seconds)


def _spent(pid: int, page: Page, where: str, seconds: float) -> float:
    begun = processor_s(pid)
    end = time.monotonic() + seconds
    page.goto(where)
    time.sleep(max(end - time.monotonic(), 0))
    return processor_s(pid) - begun


@contextmanager
def _used_node() -> Iterator[tuple[str, int]]:
    """A node with a topic and a group; its address and process id."""
    with tempfile.TemporaryDirectory() as place, run_node(Path(place) / "data") as node:
        topic = f"{node.url}/v1/topics/orders"
        httpx.put(topic, json={"queues": 4}).raise_for_status()
        for _ in range(100):
            httpx.post(f"{topic}/messages", content=b"x").raise_for_status()
        httpx.post(f"{topic}/groups/billing/messages:receive").raise_for_status()
        yield node.url, node.process.pid


def _measure(_seconds: float) -> tuple[float, float]:
    with _used_node() as (url, pid):
        cost = open_overview(url, pid, OPEN_S)
    return cost.idle * 100, cost.busy * 100


def _missing() -> list[str]:
    return [] if Path(CHROMIUM).exists() else ["chromium"]


OVERVIEW_ROWS: Final = (
    Row(
        "open overview, processor time",
        "% of a core, 60 s",
        "the node by itself",
        "at most 1 more",
        _measure,
        runs=1,
        missing=_missing,
    ),
)
