"""The few requests that the connector makes, over urllib3, with retries and errors in words.

urllib3 and not httpx: fetching a 4 MiB answer costs it a quarter of the CPU time. Connections are
kept for each process (Spark forks its workers, and a socket must not be shared by two of them), so
a client is cheap to make and holds plain values only. Called by `stream` on the driver and by
`pulling` on the executors.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode

import urllib3

from pyspark_curlew.errors import (
    AccessDenied,
    FrameDamaged,
    ProtocolViolation,
    RequestRefused,
    TopicNotFound,
)
from pyspark_curlew.frame import CONTENT_TYPE, Frame, parse_frame
from pyspark_curlew.options import HttpOptions
from pyspark_curlew.retry import RetryPolicy, TryLater

_RETRIED: Final = frozenset({408, 429, 500, 502, 503, 504})
_CONNECTIONS_PER_PROCESS: Final = 8

_pools: dict[tuple[int, HttpOptions], urllib3.PoolManager] = {}
"""By process id: a forked worker finds its parent's entry and must not use it."""


@dataclass(frozen=True, slots=True)
class Pulled:
    """A frame and what its headers say. `next_offset`: where to go on reading."""

    frame: Frame
    next_offset: int
    max_offset: int
    store_id: bytes


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """The wanted offset cannot be read: it lies outside `min_offset` to `max_offset` (excluded)."""

    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, headers (names in lower case) and body of one response."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class CurlewClient:
    """Requests to one Curlew address."""

    def __init__(self, options: HttpOptions, policy: RetryPolicy | None = None) -> None:
        self._options = options
        self._policy = policy or RetryPolicy.of(options)

    def offsets(self, topic: str, at: str) -> dict[int, int]:
        """The `earliest` or `latest` offset of each queue; latest is one past the last."""
        path = f"/v1/topics/{quote(topic, safe='')}/offsets"

        def attempt() -> dict[int, int]:
            answer = self._get(path, {"at": at})
            _raise_for_status(answer, f"topic {topic!r}")
            return _offsets_of(answer.body)

        return self._policy.run(f"asking for the {at} offsets of topic {topic!r}", attempt)

    def pull(
        self,
        topic: str,
        queue: int,
        offset: int,
        *,
        end_offset: int,
        max_messages: int,
        max_bytes: int,
        wait_s: int,
    ) -> Pulled | OutOfRange:
        """Messages of one queue from `offset` on, at most up to `end_offset` (excluded)."""
        path = f"/v1/topics/{quote(topic, safe='')}/queues/{queue}/messages"
        query = {
            "offset": offset,
            "end_offset": end_offset,
            "max_messages": max_messages,
            "max_bytes": max_bytes,
            "wait": wait_s,
        }
        what = f"pulling topic {topic!r} queue {queue} from offset {offset}"

        def attempt() -> Pulled | OutOfRange:
            answer = self._get(path, query, accept=CONTENT_TYPE, wait_s=wait_s)
            if answer.status in {410, 416}:
                return _out_of_range(answer)
            _raise_for_status(answer, f"topic {topic!r} queue {queue}")
            return _pulled(answer)

        return self._policy.run(what, attempt)

    def _get(
        self,
        path: str,
        query: Mapping[str, str | int],
        accept: str = "application/json",
        wait_s: int = 0,
    ) -> Answer:
        timeout = urllib3.Timeout(
            connect=self._options.connect_timeout_ms / 1000,
            read=self._options.read_timeout_ms / 1000 + wait_s,
        )
        try:
            response = self._pool().request(
                "GET",
                f"{self._options.endpoint}{path}?{urlencode(query)}",
                headers={"Accept": accept},
                timeout=timeout,
                retries=False,
            )
        except urllib3.exceptions.HTTPError as error:
            raise TryLater(f"{type(error).__name__}: {error}") from None
        headers = {name.lower(): value for name, value in response.headers.items()}
        answer = Answer(response.status, headers, response.data)
        if answer.status in _RETRIED:
            raise TryLater(_describe(answer), _retry_after_s(headers))
        return answer

    def _pool(self) -> urllib3.PoolManager:
        key = (os.getpid(), self._options)
        if key not in _pools:
            _pools[key] = urllib3.PoolManager(maxsize=_CONNECTIONS_PER_PROCESS)
        return _pools[key]


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    value = headers.get("retry-after", "")
    return float(value) if value.isdecimal() else None


def _raise_for_status(answer: Answer, subject: str) -> None:
    if answer.status == 200:
        return
    if answer.status in {401, 403}:
        raise AccessDenied(f"{subject}: {_describe(answer)}")
    if answer.status == 404:
        raise TopicNotFound(f"{subject}: {_describe(answer)}")
    raise RequestRefused(f"{subject}: {_describe(answer)}")


def _describe(answer: Answer) -> str:
    """Status, code, detail, hint and request id, as far as the answer has them."""
    problem = _problem(answer.body)
    parts = [f"HTTP {answer.status}"]
    parts += [str(problem[name]) for name in ("code", "detail", "hint") if problem.get(name)]
    request_id = answer.headers.get("mq-request-id")
    if request_id:
        parts.append(f"request {request_id}")
    return "; ".join(parts)


def _problem(body: bytes) -> Mapping[str, object]:
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _offsets_of(body: bytes) -> dict[int, int]:
    queues = _problem(body).get("offsets")
    try:
        assert isinstance(queues, list)
        return {int(row["queue_id"]): int(row["offset"]) for row in queues}
    except (AssertionError, KeyError, TypeError, ValueError):
        raise ProtocolViolation(f"the offsets cannot be read: {body[:200]!r}") from None


def _out_of_range(answer: Answer) -> OutOfRange:
    problem = _problem(answer.body)
    low, high = problem.get("min_offset"), problem.get("max_offset")
    if not isinstance(low, int) or not isinstance(high, int):
        raise ProtocolViolation(f"no min_offset and max_offset in: {_describe(answer)}")
    return OutOfRange(low, high)


def _pulled(answer: Answer) -> Pulled:
    media_type = answer.headers.get("content-type", "").partition(";")[0].strip()
    if media_type != CONTENT_TYPE:
        raise ProtocolViolation(f"a pull was answered with {media_type!r}, not {CONTENT_TYPE!r}")
    try:
        frame = parse_frame(answer.body)
    except FrameDamaged as damage:
        raise TryLater(str(damage)) from None
    return Pulled(
        frame=frame,
        next_offset=_whole_header(answer, "mq-next-offset"),
        max_offset=_whole_header(answer, "mq-max-offset"),
        store_id=_store_id(answer),
    )


def _whole_header(answer: Answer, name: str) -> int:
    value = answer.headers.get(name, "")
    if not value.isdecimal():
        raise ProtocolViolation(f"header {name} is {value!r}, not a whole number")
    return int(value)


def _store_id(answer: Answer) -> bytes:
    value = answer.headers.get("mq-store-id", "")
    try:
        store_id = bytes.fromhex(value)
    except ValueError:
        store_id = b""
    if len(store_id) != 4:
        raise ProtocolViolation(f"header mq-store-id is {value!r}, not 8 hexadecimal digits")
    return store_id
