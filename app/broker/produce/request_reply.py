"""Requests and replies: a message that its sender waits for the answer to.

A request is stored like any message, with RocketMQ's CORRELATION_ID, REPLY_TO_CLIENT and TTL.
Whoever has consumed it replies to the correlation id; the reply goes straight to the request that
waits on this node. Nothing of a reply is stored: there is no reply topic, so an unused one costs
nothing, and a reply that nobody waits for any more is refused, not lost in silence.

Waiting requests live in memory only, bounded by `requests_waiting_max`. Event loop only.
"""

import asyncio
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec.structs import replace

from app.broker.context import Context
from app.broker.produce.sender import Sender
from app.broker.results import SendResult
from app.domain.errors import (
    IllegalWait,
    NoReply,
    RequestExpired,
    RequestNotFound,
    ShuttingDown,
    TooManyRequests,
)
from app.domain.message import (
    PROPERTY_CORRELATION_ID,
    PROPERTY_REPLY_BY,
    PROPERTY_REPLY_TO,
    PROPERTY_TTL,
    Message,
    StoredMessage,
    check_message,
)
from app.domain.names import DEFAULT_NAMESPACE, namespace_of
from app.domain.positions import FlushMode
from app.domain.quotas.quota import Quota

_RANDOM_BYTES: Final = 16
"""As many as a UUID has, which RocketMQ uses: nobody guesses the id of another's request."""
_STORED_HINT: Final = "the request may still be handled; sending it again makes a second one"
_TIME_DIGITS_MAX: Final = 15
"""Of epoch milliseconds. A frame may bring a property of any length."""


class Reply(NamedTuple):
    """What was answered, and when by the node's clock."""

    message: Message
    replied_ms: int


class Replied(NamedTuple):
    """A request that was stored and answered."""

    sent: SendResult
    correlation_id: str
    reply: Reply


class Expectation(NamedTuple):
    """What a consumer of a request has to know: where the reply goes, and until when."""

    correlation_id: str
    until_ms: int


class _Waiting(NamedTuple):
    """A request under way: its topic, and what its sender waits for."""

    topic: str
    future: asyncio.Future[Reply]


class Requests:
    """The requests that wait on this node. One per broker."""

    def __init__(self, context: Context, sender: Sender) -> None:
        self._node = context.store.store_id.hex()
        self._clock = context.clock
        self._limits = context.limits
        self._sender = sender
        self._check_open = context.gate.check_for_sends
        self._waiting: dict[str, _Waiting] = {}

    @property
    def waiting_count(self) -> int:
        """Requests that wait for their reply now."""
        return len(self._waiting)

    async def request(
        self,
        topic: str,
        message: Message,
        wait_s: float,
        *,
        queue_id: int | None = None,
        flush: FlushMode | None = None,
        on_stored: Callable[[SendResult], object] = lambda _: None,
    ) -> Replied:
        """Store a message and wait for the reply to it, `wait_s` seconds in all. `on_stored` hears
        of it as soon as it is in the log, whatever comes of the wait.

        Every error has `outcome`: "stored" when the request is in the log and no reply came
        (`NoReply`, or `ShuttingDown` when the node stops). Whoever is cancelled waits no longer.
        """
        self._check_open()
        self._check(wait_s)
        loop = asyncio.get_running_loop()
        deadline, wait_ms = loop.time() + wait_s, max(round(wait_s * 1000), 1)
        correlation_id = f"{self._node}-{secrets.token_hex(_RANDOM_BYTES)}"
        system = {
            **message.system,
            PROPERTY_CORRELATION_ID: correlation_id,
            PROPERTY_REPLY_TO: f"curlew-{self._node}",
            PROPERTY_TTL: str(wait_ms),
            PROPERTY_REPLY_BY: str(self._clock.now_ms() + wait_ms),
        }
        future: asyncio.Future[Reply] = loop.create_future()
        self._waiting[correlation_id] = _Waiting(topic, future)
        try:
            stored = replace(message, system=system)
            sent = await self._sender.send(topic, stored, queue_id=queue_id, flush=flush)
            on_stored(sent)
            try:
                async with asyncio.timeout_at(deadline):
                    reply = await future
            except TimeoutError:
                if future.cancelled():
                    raise _no_reply(sent, correlation_id, wait_s) from None
                reply = future.result()  # it came in the same turn, and its sender was told so
        finally:
            del self._waiting[correlation_id]
            if not future.cancel() and not future.cancelled():
                future.exception()  # seen, although nobody waited for it
        return Replied(sent, correlation_id, reply)

    def topic_of(self, correlation_id: str) -> str | None:
        """Where the request was sent that waits; None: none does."""
        waiting = self._waiting.get(correlation_id)
        return None if waiting is None else waiting.topic

    def reply(
        self,
        correlation_id: str,
        message: Message,
        namespace: str = DEFAULT_NAMESPACE,
        *,
        is_hidden: bool = False,
    ) -> None:
        """Hand `message` to the request of the namespace that waits for it; with `is_hidden`, say
        that none does.

        Raises `RequestExpired` when it waits no longer, `RequestNotFound` when it never did on this
        node, and what a send raises for a message that breaks a limit.
        """
        self._check_open()
        check_message(message, self._limits)
        waiting = self._waiting.get(correlation_id)
        is_ours = waiting is not None and namespace_of(waiting.topic) == namespace
        if waiting is not None and is_ours and not (waiting.future.done() or is_hidden):
            waiting.future.set_result(Reply(message, self._clock.now_ms()))
            return
        node, _, token = correlation_id.partition("-")
        if node == self._node and len(token) == 2 * _RANDOM_BYTES:
            raise RequestExpired(
                "nobody waits for this reply: it came too late, twice, or the requester has left",
                hint="acknowledge the request; its sender knows that it got no answer in time",
            )
        raise RequestNotFound(
            f"no request with the correlation id {correlation_id!r} was made here",
            hint="take correlation_id from the request's message",
        )

    def close(self) -> None:
        """Answer all that wait: the node stops."""
        for waiting in self._waiting.values():
            if not waiting.future.done():
                waiting.future.set_exception(
                    ShuttingDown(
                        "the node stops; the request is stored, and nobody waits for its reply",
                        hint=_STORED_HINT,
                        outcome="stored",
                    )
                )

    def _check(self, wait_s: float) -> None:
        limits = self._limits
        if not 0 < wait_s <= limits.wait_seconds_max:
            raise IllegalWait(
                f"a request cannot wait for {wait_s:g} s",
                hint=f"wait for more than 0 and at most {limits.wait_seconds_max} seconds",
                fields={"limit_seconds": limits.wait_seconds_max},
                outcome="not_stored",
            )
        if len(self._waiting) >= limits.requests_waiting_max:
            raise TooManyRequests(
                f"{limits.requests_waiting_max} requests wait for replies already",
                hint="send again after a pause, or to another node",
                fields={"limit": limits.requests_waiting_max},
                quota=Quota("requests", limits.requests_waiting_max, "concurrent-requests", 0),
                outcome="not_stored",
                retry_after_s=1,
            )


def expectation_of(message: StoredMessage) -> Expectation | None:
    """Who waits for a reply to `message`, and until when; None: nobody ever did."""
    correlation_id = message.system.get(PROPERTY_CORRELATION_ID)
    until = message.system.get(PROPERTY_REPLY_BY)
    if correlation_id is None or until is None or not (until.isascii() and until.isdigit()):
        return None
    if len(until) > _TIME_DIGITS_MAX:
        return None
    return Expectation(correlation_id, int(until))


def _no_reply(sent: SendResult, correlation_id: str, wait_s: float) -> NoReply:
    return NoReply(
        f"the request is stored, but no reply came within {wait_s:g} s",
        hint=_STORED_HINT,
        fields={
            "correlation_id": correlation_id,
            "message_id": sent.message_id,
            "queue_id": sent.queue_id,
            "queue_offset": sent.queue_offset,
        },
        outcome="stored",
    )
