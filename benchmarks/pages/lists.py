"""The lists of the pages with many rows beside `GET /v1/topics?page_size=100`; an open overview.

`python -m benchmarks.pages.lists [SECONDS]` starts a node, makes 10,000 topics and 1,000 groups,
and prints the median time of each list (in turns, so that the machine's pace is the same for all)
and the processor time that an open overview costs in so many seconds, 60 unless said.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx

from benchmarks.pages.overview import OPEN_S, open_overview
from tests.support.nodes.node import run_node

TOPICS: Final = 10_000
GROUPS: Final = 1_000
TURNS: Final = 40
API: Final = "/v1/topics?page_size=100"
PAGES: Final = (
    "/ui/topics",
    "/ui/groups",
    "/ui/delayed",
    "/ui/dead-letters",
    "/ui/transactions",
    "/ui/schedules",
)


def fill(client: httpx.Client) -> None:
    """10,000 topics; 1,000 groups that have read one each; some that wait, some that are dead."""
    for number in range(TOPICS):
        client.put(f"/v1/topics/topic-{number:05}", json={"queues": 4}).raise_for_status()
    for number in range(GROUPS):
        topic, group = f"topic-{number:05}", f"group-{number:04}"
        entries = [{"text": f"order {place}"} for place in range(8)]
        _ok(client.post(f"/v1/topics/{topic}/messages:batch", json={"messages": entries}))
        path = f"/v1/topics/{topic}/groups/{group}/messages"
        taken = _ok(client.post(f"{path}:receive?max_messages=4")).json()["messages"]
        letters = [{"receipt_handle": taken[0]["receipt_handle"], "reason": "no stock"}]
        if number % 10 == 0:
            _ok(client.post(f"{path}:settle", json={"dead_letters": letters}))
            later = {"mq-delay": "2h"}
            _ok(client.post(f"/v1/topics/{topic}/messages", content=b"later", headers=later))


def _ok(answer: httpx.Response) -> httpx.Response:
    answer.raise_for_status()
    return answer


def times_of(client: httpx.Client) -> dict[str, list[float]]:
    """Seconds of each list, one after another in each turn; pages that are missing are left out."""
    there = {path: path for path in (API, *PAGES) if client.get(path).is_success}
    there |= deep_pages(client)
    found: dict[str, list[float]] = {name: [] for name in there}
    for _ in range(TURNS):
        for name, path in there.items():
            begun = time.perf_counter()
            _ok(client.get(path))
            found[name].append(time.perf_counter() - begun)
    return found


def deep_pages(client: httpx.Client) -> Iterator[tuple[str, str]]:
    """The last page of the lists of topics and groups, which is read as fast as the first: what it
    is called, and its address."""
    for name, size in (("topics", 1_000), ("groups", 950)):
        token = None
        while True:
            asked = {"page_size": size, **({"page_token": token} if token else {})}
            found = _ok(client.get(f"/v1/{name}", params=asked)).json()
            if not found["next_page_token"]:
                break
            token = found["next_page_token"]
        path = f"/ui/{name}"
        yield f"{path} near its end", str(httpx.URL(path, params={"page_token": token}))


def main() -> None:
    """Fill a node, and print what its lists and its overview cost."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else OPEN_S
    with (
        tempfile.TemporaryDirectory() as place,
        run_node(Path(place) / "data") as node,
        httpx.Client(base_url=node.url, timeout=60) as client,
    ):
        _ok(client.put("/v1/topics/topic-00000", json={"queues": 4}))  # one of those of `fill`
        _ok(client.post("/v1/topics/topic-00000/messages", content=b"x"))
        show_overview("of one topic", node.url, node.process.pid, seconds)
        fill(client)
        found = times_of(client)
        base = statistics.median(found[API])
        for name, each in found.items():
            median = statistics.median(each)
            print(f"{name:32} {median * 1_000:7.1f} ms  {median / base:5.2f} x")
        show_overview(f"of {TOPICS:,} topics", node.url, node.process.pid, seconds)


def show_overview(what: str, url: str, pid: int, seconds: float) -> None:
    """Print what an open overview costs beside what the node costs by itself."""
    idle, busy = open_overview(url, pid, seconds)
    costs = f"{busy - idle:.2%} of a core"
    print(f"an open overview {what}: {costs} ({busy:.2%} with it, {idle:.2%} without)")


if __name__ == "__main__":
    main()
