"""What a send gives back, and what is read from the answers that say it. Pure."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple, overload

from curlew_client.errors import CurlewError
from curlew_client.wire.bodies import shown_body
from curlew_client.wire.http1 import Answer
from curlew_client.wire.problems import error_of, error_of_problem


class SendResult(NamedTuple):
    """Where a message is.

    `message_id` is None for messages that went in a batch frame, `queue_id` and `queue_offset` for
    those that are for later, and all three when the node knows no more than that the message was
    stored before. `is_duplicate`: an earlier attempt had stored it. `is_safe`: as safe as the topic
    promises when this was answered; False when less was asked for.
    """

    topic: str
    message_id: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    store_time_ms: int | None = None
    is_duplicate: bool = False
    is_safe: bool = True
    recall_handle: str | None = None
    deliver_time_ms: int | None = None
    transaction_id: str | None = None
    unique_id: str | None = None


class Reply(NamedTuple):
    """The reply to a request, and where the request is."""

    body: bytes
    tag: str | None
    keys: tuple[str, ...]
    properties: dict[str, str]
    content_type: str | None
    message_id: str
    correlation_id: str

    @property
    def text(self) -> str:
        """The body as UTF-8."""
        return self.body.decode()

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


def reply_of(answer: Answer, url: str) -> Reply:
    """The reply in the answer to a request."""
    try:
        shown = json.loads(answer.body)
        reply = shown["reply"]
        return Reply(
            shown_body(reply),
            reply.get("tag"),
            tuple(reply.get("keys", ())),
            dict(reply.get("properties", {})),
            reply.get("content_type"),
            shown["message_id"],
            shown["correlation_id"],
        )
    except (ValueError, KeyError, TypeError):
        raise error_of(answer, url) from None


def result_of(answer: Answer, topic: str, url: str) -> SendResult:
    """The result of a single send, or the exception of its refusal, raised."""
    if answer.status not in {200, 201, 202}:
        raise error_of(answer, url)
    try:
        shown = json.loads(answer.body)
        return _result(shown, topic, answer.status)
    except (ValueError, TypeError, AttributeError):
        raise error_of(answer, url) from None


class FrameResults(Sequence[SendResult]):
    """The results of a frame, which follow one another; each is made when it is asked for."""

    __slots__ = ("_count", "_first")

    def __init__(self, first: SendResult, count: int) -> None:
        self._first = first
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> SendResult: ...

    @overload
    def __getitem__(self, index: slice) -> list[SendResult]: ...

    def __getitem__(self, index: int | slice) -> SendResult | list[SendResult]:
        if isinstance(index, slice):
            return [self[each] for each in range(self._count)[index]]
        step = range(self._count)[index]
        first = self._first
        return first._replace(queue_offset=(first.queue_offset or 0) + step)


def results_of(
    answer: Answer, topic: str, count: int, url: str
) -> Sequence[SendResult | CurlewError]:
    """One result, or error, for each of `count` messages of a batch."""
    if answer.status not in {200, 201, 202, 207}:
        raise error_of(answer, url)
    if answer.status == 202 and not answer.body:  # one-way
        return [SendResult(topic, is_safe=False)] * count
    try:
        shown = json.loads(answer.body)
    except ValueError:
        raise error_of(answer, url) from None
    if "results" in shown:
        return [_entry(each, topic) for each in shown["results"]]
    if "first_queue_offset" not in shown:
        raise error_of(answer, url)
    first, queue_id = shown["first_queue_offset"], shown["queue_id"]
    stored_ms = shown["store_time_ms"]
    is_duplicate, is_safe = _is_duplicate(answer), answer.status != 202
    first_result = SendResult(topic, None, queue_id, first, stored_ms, is_duplicate, is_safe)
    return FrameResults(first_result, count)


def _result(shown: dict[str, Any], topic: str, status: int) -> SendResult:
    get = shown.get
    return SendResult(
        topic,
        get("message_id"),
        get("queue_id"),
        get("queue_offset"),
        get("store_time_ms"),
        status == 200,
        status != 202,
        get("recall_handle"),
        get("deliver_time_ms"),
        get("transaction_id"),
        get("unique_id"),
    )


def _entry(shown: dict[str, Any], topic: str) -> SendResult | CurlewError:
    if "error" in shown:
        return error_of_problem(shown["error"], shown["status"])
    return _result(shown, topic, 202 if shown["status"] == 202 else 201)


def _is_duplicate(answer: Answer) -> bool:
    return answer.headers.get("mq-duplicate") == "true"
