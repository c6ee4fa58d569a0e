"""`curlew bench`: how long sends take at a node, from here.

Figures are of this machine, this network and this moment, with the client's own overhead in them.
"""

import sys
import threading
import time
from typing import Annotated, Any

from curlew_client.command.messages.outgoing import send_batch, send_one
from curlew_client.command.output import print_json, print_line, print_table, say
from curlew_client.command.parsing.declared import App, Parameter
from curlew_client.command.service import Service, Where
from curlew_client.command.words import NotSo, bytes_text
from curlew_client.errors import CurlewError
from curlew_client.producing.messages import Message
from curlew_client.wire.durations import seconds_of

app = App("bench", "How long sends take: percentiles, histogram, messages a second.")

THREADS_MAX: int = 64
BARS: int = 40
_BOUNDS_MS = (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)


@app.default
def bench(
    topic: str,
    /,
    *,
    seconds: Annotated[str, Parameter(name=("--for", "--duration"))] = "10s",
    size: int = 1_024,
    batch: int = 1,
    at_once: int = 1,
    where: Where = Where(),
) -> None:
    """Send messages to TOPIC for some time, and say how long each request took.

    The messages stay in the topic; take one that nobody reads.

    Parameters
    ----------
    seconds
        How long, such as 30s.
    size
        Bytes of each body.
    batch
        Messages in each request.
    at_once
        Requests at once, each from a thread of its own.
    """
    span_s = seconds_of("--for", seconds)
    if not (1 <= at_once <= THREADS_MAX and 1 <= batch <= 10_000 and size >= 0 and span_s > 0):
        raise NotSo(
            f"--at-once is 1 to {THREADS_MAX}, --batch 1 to 10000, --size 0 or more, --for above 0"
        )
    load = _Load([Service(where) for _ in range(at_once)], topic, batch, b"x" * size)
    send_one(Service(where), topic, Message(b"x" * size))  # refusals are said before it begins
    took_s = load.run(span_s)
    found = summary(load.took_ms, took_s, batch, size)
    if load.errors:
        found["errors"] = load.errors
    if where.json:
        print_json(found)
    elif load.took_ms:
        _print(found)
    if load.errors:
        raise load.errors_as_one()


class _Load:
    """Threads that send one after the other until the time is over, or one of them fails."""

    def __init__(self, services: list[Service], topic: str, batch: int, body: bytes) -> None:
        self._services = services
        self._topic = topic
        self._batch = batch
        self._body = body
        self._ended = threading.Event()
        self.took_ms: list[float] = []
        self.failures: list[CurlewError] = []

    @property
    def errors(self) -> int:
        """Requests that failed; each ends its thread."""
        return len(self.failures)

    def errors_as_one(self) -> CurlewError:
        """The first of them."""
        return self.failures[0]

    def run(self, span_s: float) -> float:
        """Seconds that it took."""
        threads = [
            threading.Thread(target=self._send, args=(service,)) for service in self._services
        ]
        began_s = time.monotonic()
        for thread in threads:
            thread.start()
        try:
            while (left_s := began_s + span_s - time.monotonic()) > 0 and not self.failures:
                self._ended.wait(min(left_s, 0.25))
                if sys.stderr.isatty():
                    sys.stderr.write(f"\r{len(self.took_ms):,} requests, {left_s:.0f} s left\x1b[K")
        finally:
            self._ended.set()
            for thread in threads:
                thread.join()
            if sys.stderr.isatty():
                sys.stderr.write("\r\x1b[K")
        return time.monotonic() - began_s

    def _send(self, service: Service) -> None:
        while not self._ended.is_set():
            began_s = time.perf_counter()
            try:
                if self._batch == 1:
                    send_one(service, self._topic, Message(self._body))
                else:
                    messages = [Message(self._body) for _ in range(self._batch)]
                    send_batch(service, self._topic, messages)
            except CurlewError as error:
                self.failures.append(error)
                return
            self.took_ms.append((time.perf_counter() - began_s) * 1_000)


def summary(took_ms: list[float], span_s: float, batch: int, size: int) -> dict[str, Any]:
    """The figures of a run. Pure."""
    ordered = sorted(took_ms)
    count = len(ordered)

    def at(share: float) -> float:
        return round(ordered[min(int(count * share), count - 1)], 3) if count else 0.0

    counts = dict.fromkeys([*map(str, _BOUNDS_MS), "more"], 0)
    for each in ordered:
        bound = next((str(bound) for bound in _BOUNDS_MS if each <= bound), "more")
        counts[bound] += 1
    return {
        "requests": count,
        "messages": count * batch,
        "seconds": round(span_s, 3),
        "messages_per_s": round(count * batch / span_s, 1),
        "bytes_per_s": round(count * batch * size / span_s),
        "latency_ms": {
            "min": at(0),
            "mean": round(sum(ordered) / count, 3) if count else 0.0,
            **{f"p{name}": at(share) for name, share in _SHARES.items()},
            "max": at(1),
        },
        "histogram_ms": counts,
    }


_SHARES = {"50": 0.5, "90": 0.9, "99": 0.99, "99.9": 0.999}


def _print(found: dict[str, Any]) -> None:
    rate = f"{found['messages_per_s']:,.0f} messages/s, {bytes_text(found['bytes_per_s'])}/s"
    print_line(f"{found['messages']:,} messages in {found['seconds']:.1f} s: {rate}")
    print_table(
        list(found["latency_ms"]), [[f"{each:.2f} ms" for each in found["latency_ms"].values()]]
    )
    counts = found["histogram_ms"]
    most = max(counts.values())
    shown = [name for name, count in counts.items() if count]
    first, last = list(counts).index(shown[0]), list(counts).index(shown[-1])
    for name in list(counts)[first : last + 1]:
        label = "more" if name == "more" else f"≤ {name} ms"
        bar = "█" * round(counts[name] / most * BARS)
        print_line(f"{label:>10}  {counts[name]:>9,}  {bar}")
    if found.get("errors"):
        say(f"{found['errors']} requests failed")
