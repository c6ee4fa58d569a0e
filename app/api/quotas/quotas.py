"""Quotas of principals and topics: requests and bytes a second, requests and connections at a time.

The first refusal is 429, which says when to come back, and after it the connection is not read
until then: a client that asks again at once would be as loud as before. Bytes are counted when they
are known, which may be after the request, and are a debt then. Buckets are of principals that were
recognised: nobody drains another's by claiming a name. Event loop only.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final, NamedTuple

from app.api.http.errors import TooManyConnections
from app.api.http.request_context import (
    CONNECTION,
    WHOLE_BODY,
    ConnectionMemory,
    Event,
    Receive,
    RequestContext,
    Send,
)
from app.domain.errors import TooManyRequests
from app.domain.limits import QUOTA_ROWS_MAX
from app.domain.quotas.bucket_table import BucketTable, DebtBucket
from app.domain.quotas.quota import Quota, QuotaUnit

_REQUESTS: Final[QuotaUnit] = "requests"
_BYTES: Final[QuotaUnit] = "content-bytes"
_AT_A_TIME: Final[QuotaUnit] = "concurrent-requests"
PARKED_QUOTA: Final = "principal-parked-polls"
_CONTENT_LENGTH: Final = b"content-length"
_TRANSFER_ENCODING: Final = b"transfer-encoding"
_CLIENTS_HINT: Final = "send at a lower rate, or more in one request; Retry-After says when"


class TooManyOfOne(TooManyConnections):
    """A principal has as many connections as it may; this one ends with the answer."""


class OverQuota(TooManyRequests):
    """A quota is used up; the connection is not read for `mute_s`."""

    def __init__(self, detail: str, *, hint: str, quota: Quota, wait_s: float) -> None:
        super().__init__(detail, hint=hint, retry_after_s=ceil(wait_s) or 1, quota=quota)
        self.mute_s = wait_s


@dataclass(frozen=True, slots=True)
class QuotaSettings:
    """Of each principal, and of each topic. 0: as much as there is."""

    requests_per_second: int = 0
    bytes_in_per_second: int = 0
    bytes_out_per_second: int = 0
    concurrent_requests: int = 0
    parked_polls: int = 0
    connections: int = 0
    topic_requests_per_second: int = 0
    topic_bytes_in_per_second: int = 0
    topic_bytes_out_per_second: int = 0


class _Row(NamedTuple):
    """The buckets of one name, as many as have a rate."""

    of_requests: Sequence[DebtBucket]
    of_bodies: Sequence[DebtBucket]
    of_answers: Sequence[DebtBucket]
    named: Sequence[tuple[str, QuotaUnit, DebtBucket]]
    """All of them."""


class _Rates:
    """The three rates of one kind of name."""

    def __init__(self, kind: str, requests: int, bytes_in: int, bytes_out: int) -> None:
        self._kind = kind
        self._rates = (
            (f"{kind}-requests", _REQUESTS, requests),
            (f"{kind}-bytes-in", _BYTES, bytes_in),
            (f"{kind}-bytes-out", _BYTES, bytes_out),
        )
        self._rows = BucketTable[str, _Row](self._made, QUOTA_ROWS_MAX)

    def _made(self, now_s: float) -> _Row:
        requests, bodies, answers = (
            [(label, unit, DebtBucket(rate, now_s))] if rate else []
            for label, unit, rate in self._rates
        )
        return _Row(
            [bucket for _, _, bucket in requests],
            [bucket for _, _, bucket in bodies],
            [bucket for _, _, bucket in answers],
            [*requests, *bodies, *answers],
        )

    def admit(self, name: str, size: int, now_s: float) -> _Row:
        """Take what is known now; the buckets of the name. Raises `OverQuota`."""
        row = self._rows.row(name, now_s)
        for label, unit, bucket in row.named:
            wait_s = bucket.wait_s(now_s)
            if wait_s:
                if unit is _REQUESTS:
                    bucket.spend(1, now_s)  # who asks on meanwhile waits longer
                raise self._refusal(name, label, unit, bucket.rate_per_s, wait_s)
        for bucket in row.of_requests:
            bucket.spend(1, now_s)
        for bucket in row.of_bodies:
            bucket.spend(size, now_s)
        return row

    def _refusal(
        self, name: str, label: str, unit: QuotaUnit, rate: float, wait_s: float
    ) -> OverQuota:
        quota = Quota(label, int(rate), unit, 0, window_s=1, reset_s=ceil(wait_s))
        what = "requests" if unit is _REQUESTS else "bytes"
        return OverQuota(
            f"{self._kind} {name!r} has used its {int(rate)} {what} a second",
            hint=_CLIENTS_HINT,
            quota=quota,
            wait_s=wait_s,
        )


class Admission:
    """One request that was let in; `end` it."""

    __slots__ = ("_buckets", "_leave", "_leave_too", "_now_s")

    def __init__(
        self, buckets: list[DebtBucket], leave: Callable[[], None], now_s: Callable[[], float]
    ) -> None:
        self._buckets = buckets
        self._leave = leave
        self._leave_too: Callable[[], None] | None = None
        self._now_s = now_s

    def also(self, leave: Callable[[], None]) -> None:
        """Do this as well when the request is over. Once."""
        assert self._leave_too is None
        self._leave_too = leave

    def end(self) -> None:
        """The request is over."""
        self._leave()
        if self._leave_too is not None:
            self._leave_too()

    def counting(self, send: Send) -> Send:
        """A `send` that takes what it sends from the buckets for answers."""
        if not self._buckets:
            return send

        async def count_and_send(event: Event) -> None:
            size = len(event.get("body", b""))
            if "parts" in event:
                size += sum(part.size for part in event["parts"])
            elif "answer" in event:  # of another node, with its head
                size = len(event["answer"].partition(b"\r\n\r\n")[2])
            if size:
                now_s = self._now_s()
                for bucket in self._buckets:
                    bucket.spend(size, now_s)
            await send(event)

        return count_and_send


def _counting_receive(
    receive: Receive, buckets: list[DebtBucket], now_s: Callable[[], float]
) -> Receive:
    """A `receive` that takes what comes from the buckets."""

    async def receive_and_count() -> Event:
        event = await receive()
        size, at_s = len(event.get("body", b"")), now_s()
        for bucket in buckets:
            bucket.spend(size, at_s)
        return event

    return receive_and_count


class Quotas:
    """Of one node. The composition root makes one only when a quota is set."""

    def __init__(self, settings: QuotaSettings, now_s: Callable[[], float]) -> None:
        """`now_s` is a clock that does not go back."""
        self._now_s = now_s
        self._at_a_time_max = settings.concurrent_requests
        self._at_work: Counter[str] = Counter()
        self._parked_max = settings.parked_polls
        self._parked: Counter[str] = Counter()
        self._connections_max = settings.connections
        self._connected: Counter[str] = Counter()
        self._principals = _Rates(
            "principal",
            settings.requests_per_second,
            settings.bytes_in_per_second,
            settings.bytes_out_per_second,
        )
        self._topics = _Rates(
            "topic",
            settings.topic_requests_per_second,
            settings.topic_bytes_in_per_second,
            settings.topic_bytes_out_per_second,
        )

    def admit(self, exchange: RequestContext, principal: str | None, topic: str | None) -> None:
        """Let a request in, or raise `OverQuota` or `TooManyOfOne`. Without a name only the topic's
        quota counts."""
        now_s = self._now_s()
        size = _size_of(exchange)
        if principal is not None:
            if self._connections_max:
                self._note_connection(exchange.scope.get(CONNECTION), principal)
            self._refuse_more(principal)
        later: list[DebtBucket] = []
        buckets: list[DebtBucket] = []
        for rates, name in ((self._principals, principal), (self._topics, topic)):
            if name is not None:
                row = rates.admit(name, size, now_s)
                later += row.of_bodies
                buckets += row.of_answers
        if later and _TRANSFER_ENCODING in exchange.headers and not size:
            exchange.receive = _counting_receive(exchange.receive, later, self._now_s)
        admission = Admission(buckets, self._enter(principal), self._now_s)
        exchange.send = admission.counting(exchange.send)
        exchange.admission = admission

    def _note_connection(self, connection: ConnectionMemory | None, principal: str) -> None:
        """Count the connection as the principal's, until it ends or is another's."""
        if connection is None or connection.principal == principal:
            return
        most, connected = self._connections_max, self._connected
        if connected[principal] >= most:
            raise TooManyOfOne(
                f"principal {principal!r} has {most} connections open",
                hint="keep connections open and use them again, or end some",
                fields={"limit_connections": most},
            )
        connection.lost()
        connection.principal, connection.when_lost = principal, _counted(connected, principal)

    @property
    def bounds_parked(self) -> bool:
        """Whether there is a bound on requests that wait."""
        return self._parked_max > 0

    def park(self, principal: str) -> Callable[[], None]:
        """Count a request that asks to wait, until what is given is called; or raise
        `OverQuota`."""
        most = self._parked_max
        if self._parked[principal] >= most:
            raise OverQuota(
                f"principal {principal!r} has {most} requests under way that wait",
                hint="let some end, ask without waiting, or ask for several queues and topics in "
                "one request",
                quota=Quota(PARKED_QUOTA, most, _AT_A_TIME, 0),
                wait_s=1.0,
            )
        return _counted(self._parked, principal)

    def _refuse_more(self, principal: str) -> None:
        most = self._at_a_time_max
        if most and self._at_work[principal] >= most:
            raise OverQuota(
                f"principal {principal!r} has {most} requests under way, polls and streams with "
                "them",
                hint="let some end, or ask for several queues and topics in one request",
                quota=Quota("principal-concurrency", most, _AT_A_TIME, 0),
                wait_s=1.0,
            )

    def _enter(self, principal: str | None) -> Callable[[], None]:
        if principal is None or not self._at_a_time_max:
            return _nothing
        return _counted(self._at_work, principal)


def _counted(of: Counter[str], principal: str) -> Callable[[], None]:
    """Count one more; what counts it out again."""
    of[principal] += 1

    def leave() -> None:
        of[principal] -= 1
        if of[principal] <= 0:
            del of[principal]

    return leave


def _size_of(exchange: RequestContext) -> int:
    """Bytes of the body, as announced or as there; of one that comes in chunks nothing yet."""
    given = exchange.headers.get(_CONTENT_LENGTH)
    if given is not None:
        return int(given) if given.isdigit() else 0
    return len(exchange.scope.get(WHOLE_BODY, b""))


def _nothing() -> None:
    pass
