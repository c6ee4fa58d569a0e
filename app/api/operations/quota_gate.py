"""What a request takes of the quotas: as it comes, and as one that waits where it asks to.

Whether a request asks to wait is seen before anything is done for it, so that one too many is
refused with nothing committed, stored or leased. It counts until it ends, in whatever way, also
while another node answers it: the node that was shown the key counts, and no other. Event loop
only.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from msgspec import Struct
from msgspec.json import Decoder

from app.api.bodies.unpacking import read_unpacked
from app.api.formats.decoding import DECODE_FAULTS
from app.api.formats.prefer_header import wait_of
from app.api.http.parameters import parse_query, wait_s_of
from app.api.http.request_context import WHOLE_BODY, RequestContext, batch_too_large
from app.api.operations.operation import Operation, Waits
from app.api.quotas.quotas import Quotas
from app.api.telemetry.request_metrics import RequestMetrics
from app.domain.errors import CurlewError, SystemBusy
from app.domain.limits import Limits
from app.domain.names import stored_name

Handler = Callable[..., Awaitable[None]]


class _Waiting(Struct):
    """What a body says of waiting."""

    wait: int | float | str | None = None


_WAITING: Final = Decoder(_Waiting)


class QuotaGate:
    """Of one gateway."""

    def __init__(self, quotas: Quotas, limits: Limits, traffic: RequestMetrics) -> None:
        self._quotas = quotas
        self._limits = limits
        self._traffic = traffic

    def admit(
        self, exchange: RequestContext, operation: Operation | None, names: tuple[str, ...] = ()
    ) -> None:
        """Let a request in, or raise `OverQuota` or `TooManyOfOne`. One of the control plane has no
        operation yet, and no topic's quota."""
        topic = None
        if operation is not None and operation.names[0] == "topic":
            topic = stored_name(exchange.namespace, names[0])
        self._quotas.admit(exchange, exchange.caller.name, topic)

    def parking(self, operation: Operation, handler: Handler) -> Handler:
        """The handler, behind `park`."""

        async def park_and_handle(exchange: RequestContext, *names: str) -> None:
            await self.park(exchange, operation.waits)
            await handler(exchange, *names)

        return park_and_handle

    async def park(self, exchange: RequestContext, waits: Waits) -> None:
        """Count one that was let in, and asks to wait, as one that waits; or raise `OverQuota`. In
        a task, where `waits` is `"body"`."""
        admission, principal = exchange.admission, exchange.caller.name
        if admission is None or principal is None or not self._quotas.bounds_parked:
            return
        if not await self._asks(exchange, waits):
            return
        leave = self._quotas.park(principal)
        self._traffic.parked_polls += 1

        def end() -> None:
            self._traffic.parked_polls -= 1
            leave()

        admission.also(end)

    async def _asks(self, exchange: RequestContext, waits: Waits) -> bool:
        if waits == "always":
            return True
        with suppress(CurlewError):  # what is wrong with it, its handler says
            given = parse_query(exchange.query).get("wait")
            given_s = None if given is None else self._seconds(given)
            if wait_of(exchange, given_s, self._limits.wait_seconds_max)[0] > 0:
                return True
        return waits == "body" and await self._asks_in_body(exchange)

    async def _asks_in_body(self, exchange: RequestContext) -> bool:
        """Read the body, and give it back as it came to whoever reads it next. Raises `SystemBusy`
        when the node has no memory to look into it."""
        limits = self._limits
        exchange.scope[WHOLE_BODY] = await exchange.read_body(
            limits.body_bytes_max, batch_too_large
        )
        body, held_bytes = exchange.scope[WHOLE_BODY], exchange.held_bytes
        try:
            unpacked = await read_unpacked(exchange, limits.body_bytes_max, limits, batch_too_large)
            wait = _WAITING.decode(unpacked).wait if unpacked else None
            return wait is not None and self._seconds(wait) > 0
        except SystemBusy:
            raise
        except (CurlewError, *DECODE_FAULTS):  # what is wrong with it, its handler says
            return False
        finally:
            exchange.scope[WHOLE_BODY] = body
            exchange.let_go(held_bytes)  # what it was unpacked to: whoever reads it does it again

    def _seconds(self, wait: float | str) -> float:
        return wait_s_of(wait, self._limits.wait_seconds_max)
