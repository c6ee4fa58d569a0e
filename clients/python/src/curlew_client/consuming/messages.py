"""A message as a consumer has it. Pure: what it does goes through a function of its client."""

import json
from binascii import a2b_base64
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from curlew_client.consuming.decisions import Decision
from curlew_client.wire.durations import Duration, milliseconds_of

Done = TypeVar("Done")
"""What settling gives: None where it blocks, a coroutine with asyncio."""


class Received(Generic[Done]):
    """A leased message. Settle it once: `ack`, `nack`, `dead_letter` or `release`.

    In a `receive` block and in a worker that happens by itself; who settles by hand decides for
    himself, and nothing more happens. The lease is extended while the block or the worker has it.
    """

    __slots__ = ("_settle", "_shown", "body", "is_settled", "leader", "receipt_handle")

    def __init__(self, shown: dict[str, Any], settle: Callable[[Decision], Done]) -> None:
        self._shown = shown
        self._settle = settle
        self.body: bytes = a2b_base64(shown.get("body_base64", ""))
        self.receipt_handle: str = shown["receipt_handle"]
        self.is_settled = False
        """Whether something was decided about it."""
        self.leader: str | None = None
        """The URL of the node that gave it without a relay; None: any node did."""

    # --- what it is

    @property
    def text(self) -> str:
        """The body as UTF-8."""
        return self.body.decode()

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def message_id(self) -> str:
        return str(self._shown["message_id"])

    @property
    def topic(self) -> str:
        return str(self._shown["topic"])

    @property
    def queue_id(self) -> int:
        return int(self._shown["queue_id"])

    @property
    def queue_offset(self) -> int:
        return int(self._shown["queue_offset"])

    @property
    def tag(self) -> str | None:
        return self._shown.get("tag")

    @property
    def keys(self) -> list[str]:
        return list(self._shown.get("keys", ()))

    @property
    def sharding_key(self) -> str | None:
        return self._shown.get("sharding_key")

    @property
    def properties(self) -> dict[str, str]:
        return dict(self._shown.get("properties", {}))

    @property
    def content_type(self) -> str | None:
        return self._shown.get("content_type")

    @property
    def born_time_ms(self) -> int:
        return int(self._shown["born_time_ms"])

    @property
    def store_time_ms(self) -> int:
        return int(self._shown["store_time_ms"])

    @property
    def unique_id(self) -> str | None:
        return self._shown.get("unique_id")

    @property
    def correlation_id(self) -> str | None:
        """Of a request, which waits for a reply."""
        return self._shown.get("correlation_id")

    @property
    def attempt(self) -> int:
        """Which delivery of the message this is, from 1 on."""
        return int(self._shown["delivery_attempt"])

    @property
    def max_attempts(self) -> int | None:
        """After so many failed deliveries it is a dead letter; None: not known."""
        return int(self._shown["max_attempts"])

    def __repr__(self) -> str:
        place = f"{self.topic}/{self.queue_id}@{self.queue_offset}"
        return f"<message {place} {self.message_id}, attempt {self.attempt}>"

    # --- what becomes of it

    def ack(self) -> Done:
        """It is done."""
        return self._decide(Decision("ack", self))

    def nack(self, delay: Duration | None = None, reason: str = "") -> Done:
        """Deliver it again, after `delay` or that of the group's policy; counts as an attempt."""
        delay_ms = None if delay is None else milliseconds_of("delay", delay)
        return self._decide(Decision("nack", self, delay_ms, reason))

    def dead_letter(self, reason: str = "") -> Done:
        """Give it up: it is a dead letter at once."""
        return self._decide(Decision("dead_letter", self, None, reason))

    def release(self) -> Done:
        """Hand it back untouched: others get it at once, and no attempt is counted."""
        return self._decide(Decision("release", self))

    def _decide(self, decision: Decision) -> Done:
        if self.is_settled:
            raise ValueError(f"{self!r} is settled already")
        self.is_settled = True
        return self._settle(decision)
