"""Calls with their attempts: a send in its lane, and other requests that may be repeated."""

import random
from collections.abc import Callable
from time import monotonic

from curlew_client.aio.connection import AsyncSlots, pause
from curlew_client.aio.pool import AsyncPool
from curlew_client.errors import (
    ConnectionFailed,
    CurlewError,
    NodeFault,
    Outcome,
    ProducerFenced,
    ProducerSealed,
    SequenceOutOfOrder,
    ServiceError,
    TimedOut,
)
from curlew_client.options import Node
from curlew_client.producing.attempts import Attempts
from curlew_client.producing.lanes import Lane
from curlew_client.producing.messages import SendRequest
from curlew_client.session import Session
from curlew_client.wire.http1 import Answer
from curlew_client.wire.problems import error_of

Reply = tuple[Answer, str]
"""An answer, and the URL of the node that gave it."""

_OF_THE_NODE = ConnectionFailed, TimedOut, NodeFault
_OF_THE_LANE = SequenceOutOfOrder, ProducerFenced, ProducerSealed
"""Errors after which the numbers of a lane are of no use."""


class AsyncSender:
    """Sends for one client."""

    def __init__(self, session: Session, pool: AsyncPool) -> None:
        self._session = session
        self._pool = pool
        self._slots = AsyncSlots(session.options.connections)

    async def send(self, request: SendRequest, timeout_s: float, retries: int) -> Reply | None:
        """Send one message or a batch; None: it was stored before, and where is forgotten.

        Raises a `CurlewError` with its `outcome`.
        """
        session = self._session
        deadline_s = monotonic() + timeout_s
        await self._slots.acquire(deadline_s)
        try:
            if not (session.options.idempotent and request.is_numbered):
                return await self._send_in(None, request, deadline_s, retries)
            return await self._send_numbered(request, deadline_s, retries)
        except ServiceError as error:
            if error.outcome == "stored" and request.is_numbered:  # before; where is forgotten
                return None
            raise
        finally:
            self._slots.release()

    async def _send_numbered(
        self, request: SendRequest, deadline_s: float, retries: int
    ) -> Reply | None:
        lanes = self._session.lanes
        lane = lanes.take()
        outcome: Outcome = "unknown"
        try:
            reply = await self._send_in(lane, request, deadline_s, retries)
        except CurlewError as error:
            if not isinstance(error, _OF_THE_LANE):
                outcome = error.outcome or "unknown"
            raise
        else:
            outcome = "stored"
            return reply
        finally:
            lanes.give_back(lane, request.scope, request.count, outcome)

    async def _send_in(
        self, lane: Lane | None, request: SendRequest, deadline_s: float, retries: int
    ) -> Reply:
        session = self._session
        attempts = Attempts(
            deadline_s,
            retries,
            may_repeat=lane is not None,
            retry_on_not_safe=session.options.retry_on_not_safe,
        )

        def rendered(node: Node) -> bytes:
            return session.render_send(node, request, lane)

        def recovers(error: CurlewError) -> bool:
            """A node that has forgotten the lane takes the message in it under a new name."""
            if lane is None or not attempts.may_change_lane(error):
                return False
            session.lanes.rename(lane)
            return True

        return await self._attempt(attempts, deadline_s, rendered, recovers)

    async def call(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        *,
        lines: str = "",
        timeout_s: float,
        retries: int = 0,
        is_long: bool = False,
    ) -> Reply:
        """Another request, which may be repeated whatever happened. Takes no slot.

        `is_long`: it waits by intention, and says nothing about how fast the node is.
        """
        session = self._session
        deadline_s = monotonic() + timeout_s
        attempts = Attempts(deadline_s, retries, may_repeat=True)

        def rendered(node: Node) -> bytes:
            return session.render(node, method, target, lines, body)

        return await self._attempt(attempts, deadline_s, rendered, _never, is_long=is_long)

    async def _attempt(
        self,
        attempts: Attempts,
        deadline_s: float,
        rendered: Callable[[Node], bytes],
        recovers: Callable[[CurlewError], bool],
        *,
        is_long: bool = False,
    ) -> Reply:
        session = self._session
        failed: str | None = None
        while True:
            node = session.pick(failed)
            began_s = monotonic()
            answer: Answer | None = None
            try:
                answer = await self._pool.exchange(node, rendered(node), deadline_s)
                error = None if answer.status < 300 else error_of(answer, node.url)
            except CurlewError as caught:
                error = caught
            now_s = monotonic()
            is_of_the_node = isinstance(error, _OF_THE_NODE)
            if is_of_the_node or not is_long:
                session.faults.report(
                    node.url, (now_s - began_s) * 1_000, now_s * 1_000, has_failed=is_of_the_node
                )
            if answer is not None and error is None:
                return answer, node.url
            assert error is not None
            if recovers(error):
                continue
            pause_s = attempts.pause_s(error, now_s, random.random())
            if pause_s is None:
                raise error
            failed = node.url if is_of_the_node else None
            await pause(pause_s)


def _never(_error: CurlewError) -> bool:
    return False
