"""Requests and messages that were served: plain counters, cheap enough for the data plane.

Written by the gateway and the handlers, read by `metrics`. Event loop only; nothing is reset.
"""

from bisect import bisect_left
from collections import Counter
from typing import Final

LATENCY_BUCKETS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0)
CLIENT_GONE: Final = 499
"""Counted, never sent: nginx's code for a client that left before its answer."""


class Times:
    """How long the answers of one kind took."""

    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(LATENCY_BUCKETS_S) + 1)
        self.seconds = 0.0


class Answers:
    """How one operation was answered: how long it took, by status."""

    __slots__ = ("times",)

    def __init__(self) -> None:
        self.times: dict[int, Times] = {}

    @property
    def statuses(self) -> dict[int, int]:
        """Status → number of answers."""
        return {status: sum(times.buckets) for status, times in self.times.items()}


class RequestMetrics:
    """The counters of one server."""

    __slots__ = (
        *("bytes_in", "bytes_out", "denials", "messages_in", "messages_out", "operations"),
        *("parked_polls", "quota_refusals"),
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.messages_out = 0
        self.bytes_out = 0
        self.operations: dict[str, Answers] = {}
        self.denials = Counter[str]()
        """By code."""
        self.quota_refusals = Counter[str]()
        """By quota, of principals and topics."""
        self.parked_polls = 0
        """Requests that ask to wait, where a quota bounds them."""

    def sent_out(self, messages: int, size: int) -> None:
        self.messages_out += messages
        self.bytes_out += size

    def taken_in(self, messages: int, size: int) -> None:
        self.messages_in += messages
        self.bytes_in += size

    def answered(self, operation_id: str, status: int, seconds: float) -> None:
        """Count one answer; status 0 is a client that left."""
        answers = self.operations.get(operation_id)
        if answers is None:
            answers = self.operations[operation_id] = Answers()
        status = status or CLIENT_GONE
        times = answers.times.get(status)
        if times is None:
            times = answers.times[status] = Times()
        times.buckets[bisect_left(LATENCY_BUCKETS_S, seconds)] += 1
        times.seconds += seconds
