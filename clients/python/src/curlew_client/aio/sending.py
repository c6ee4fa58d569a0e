"""Calls with their attempts: a send in its lane, and other requests that may be repeated."""

import random
from collections.abc import Callable, Collection
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
    QueueNotFound,
    SequenceOutOfOrder,
    ServiceError,
    TimedOut,
    TopicNotFound,
)
from curlew_client.options import Node
from curlew_client.producing.attempts import Attempts
from curlew_client.producing.lanes import Lane
from curlew_client.producing.messages import SendRequest
from curlew_client.producing.routes import (
    AGAIN_S,
    NO_RELAY,
    REFUSED_S,
    Straight,
    Way,
    is_not_leader,
    scope_of,
)
from curlew_client.session import Session
from curlew_client.wire.http1 import Answer, path_part
from curlew_client.wire.problems import error_of

Reply = tuple[Answer, str]
"""An answer, and the URL of the node that gave it."""

ROUTE_TIMEOUT_S = 1.0
"""How long a send waits for the route of its topic, once in `valid_ms`."""

OF_THE_NODE = ConnectionFailed, TimedOut, NodeFault
"""Errors that say something of the node, not of the request."""
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
            way: Way | None = None
            if session.routes.is_on:
                await self.learn_route(request.topic, deadline_s)
                way = session.routes.way(request, monotonic())
            if not (session.options.idempotent and request.is_numbered):
                return await self._send_in(None, request, way, deadline_s, retries)
            return await self._send_numbered(request, way, deadline_s, retries)
        except CurlewError as error:
            if error.outcome is None:  # of a proxy, or an older node
                error.outcome = "unknown"
            if error.outcome == "stored" and request.is_numbered:
                return None  # it was stored before, and where is forgotten
            raise
        finally:
            self._slots.release()

    async def _send_numbered(
        self, request: SendRequest, way: Way | None, deadline_s: float, retries: int
    ) -> Reply | None:
        lanes = self._session.lanes
        is_keyed = way is not None and request.sharding_key is not None
        lane = lanes.take(way.shard if way is not None and is_keyed else "")
        outcome: Outcome = "unknown"
        try:
            reply = await self._send_in(lane, request, way, deadline_s, retries)
        except CurlewError as error:
            if not isinstance(error, _OF_THE_LANE):
                outcome = error.outcome or "unknown"
            raise
        else:
            outcome = "stored"
            return reply
        finally:
            lanes.give_back(lane, scope_of(request, way), request.count, outcome)

    async def _send_in(
        self,
        lane: Lane | None,
        request: SendRequest,
        way: Way | None,
        deadline_s: float,
        retries: int,
    ) -> Reply:
        session = self._session
        attempts = Attempts(
            deadline_s,
            retries,
            may_repeat=lane is not None,
            retry_on_not_safe=session.options.retry_on_not_safe,
        )

        def rendered(node: Node) -> bytes:
            return session.render_send(node, request, lane, way)

        def recovers(error: CurlewError) -> bool:
            """A node that leads the shard no more, and one that has forgotten the lane: over any
            node, and in the lane under a new name, the message goes on."""
            is_of_the_node = isinstance(error, OF_THE_NODE)
            session.routes.failed(request, way, error, monotonic(), is_of_the_node=is_of_the_node)
            if way is not None and way.url is not None and is_not_leader(error):
                way.url = None
                return True
            if _has_shrunk(error, way) and not attempts.is_open:
                assert way is not None
                way.may_choose, way.url = False, None  # the node chooses, and numbers are of that
                return True
            if lane is None or not attempts.may_change_lane(error):
                return False
            session.lanes.rename(lane)
            return True

        def move() -> None:
            if way is not None:
                session.routes.move(request, way, monotonic(), is_open=attempts.is_open)

        return await self._attempt(attempts, deadline_s, rendered, recovers, move, way=way)

    async def learn_route(self, topic: str, deadline_s: float) -> None:
        """Ask for the route of a topic, if that has to be now and no other send does."""
        await self._ask_route(topic, (deadline_s - monotonic()) / 2)

    async def _ask_route(self, topic: str, within_s: float) -> None:
        routes = self._session.routes
        lines = routes.asks(topic, monotonic())
        if lines is None:
            return
        due_s = monotonic() + REFUSED_S
        target = f"/v1/topics/{path_part(topic)}/route"
        timeout_s = min(ROUTE_TIMEOUT_S, within_s)
        try:
            answer, _ = await self.call("GET", target, lines=lines, timeout_s=timeout_s, retries=1)
        except (TopicNotFound, ConnectionFailed, TimedOut):  # its first message may make the topic
            due_s = monotonic() + AGAIN_S
        except CurlewError:
            pass
        else:
            tag = answer.headers.get("etag")
            due_s = 0.0
            routes.keep(topic, answer.status, tag, answer.body, monotonic())
        finally:
            if due_s:
                routes.fail(topic, due_s)

    async def leader_of_most(self, queues: Collection[tuple[str, int]]) -> str | None:
        """As `Routes.leader_of_most`; asks for routes that have to be asked for now, all of them
        within `ROUTE_TIMEOUT_S`: then what is known of the others counts."""
        routes = self._session.routes
        if not routes.is_on:
            return None
        until_s = monotonic() + ROUTE_TIMEOUT_S
        for topic in {topic for topic, _ in queues}:
            left_s = until_s - monotonic()
            if left_s <= 0:
                break
            await self._ask_route(topic, left_s)
        return routes.leader_of_most(queues, monotonic())

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
        leader: str | None = None,
        first: str | None = None,
        begins_by_s: float | None = None,
        again: Callable[[], bytes] | None = None,
    ) -> Reply:
        """Another request, which may be repeated whatever happened. Takes no slot.

        `is_long`: it waits by intention, and says nothing about how fast the node is. `leader`: the
        URL of the node that is to do it for its own shard alone. `first`: of the node that is asked
        first, since it has what is asked for, or most of it; when its connection fails, any other
        node is asked at once, once, which is none of the `retries`. `again`: makes the body for
        another node, which is asked, once, when no byte of an answer has come until `begins_by_s`
        of the monotonic clock; without it that ends the call.
        """
        session = self._session
        deadline_s = monotonic() + timeout_s
        attempts = Attempts(deadline_s, retries, may_repeat=True)
        if leader is not None:
            lines += NO_RELAY
        way = _Asked(first if leader is None else leader, body, begins_by_s, again)

        def rendered(node: Node) -> bytes:
            return session.render(node, method, target, lines, way.body)

        def recovers(error: CurlewError) -> bool:
            is_elsewhere = leader is None and isinstance(error, OF_THE_NODE)
            return is_elsewhere and self._is_moved(way, error, deadline_s, is_long=is_long)

        def anywhere() -> None:
            way.url = leader

        return await self._attempt(
            attempts, deadline_s, rendered, recovers, anywhere, way=way, is_long=is_long
        )

    def _is_moved(
        self, way: "_Asked", error: CurlewError, deadline_s: float, *, is_long: bool
    ) -> bool:
        """Whether another node is asked at once, after one has failed."""
        routes, now_s, url = self._session.routes, monotonic(), way.url
        if url is not None and is_long and isinstance(error, TimedOut):  # sends may do well there
            routes.silent(url, now_s)
        elif url is not None:
            routes.unreached(url, now_s)
        if now_s >= deadline_s:
            return False
        if isinstance(error, TimedOut):
            return way.is_asked_again()
        if url is None or not isinstance(error, ConnectionFailed):
            return False
        way.url = None
        return True

    async def _attempt(
        self,
        attempts: Attempts,
        deadline_s: float,
        rendered: Callable[[Node], bytes],
        recovers: Callable[[CurlewError], bool],
        move: Callable[[], None] | None = None,
        *,
        way: Straight | None = None,
        is_long: bool = False,
    ) -> Reply:
        session = self._session
        failed: str | None = None
        while True:
            node = session.nodes[way.url] if way is not None and way.url else session.pick(failed)
            began_s = monotonic()
            answer: Answer | None = None
            try:
                begins_by_s = None if way is None else way.begins_by_s
                answer = await self._pool.exchange(node, rendered(node), deadline_s, begins_by_s)
                error = None if _is_well(answer.status) else error_of(answer, node.url)
            except CurlewError as caught:
                error = caught
            now_s = monotonic()
            is_of_the_node = isinstance(error, OF_THE_NODE)
            if is_of_the_node or not is_long:
                session.faults.report(
                    node.url, (now_s - began_s) * 1_000, now_s * 1_000, has_failed=is_of_the_node
                )
            if answer is not None and error is None:
                return answer, node.url
            assert error is not None
            if is_of_the_node:
                failed = node.url
            if recovers(error):
                continue
            pause_s = attempts.pause_s(error, now_s, random.random())
            if pause_s is None:
                raise error
            failed = node.url if is_of_the_node else None
            if move is not None:
                move()
            await pause(pause_s)


class _Asked(Straight):
    """Where a request goes that may be repeated, and its body."""

    __slots__ = ("_again", "body")

    def __init__(
        self,
        url: str | None,
        body: bytes,
        begins_by_s: float | None,
        again: Callable[[], bytes] | None,
    ) -> None:
        super().__init__(url, begins_by_s)
        self.body = body
        self._again = again

    def is_asked_again(self) -> bool:
        """Whether another node is asked, with another body: once, for all the time that is left."""
        if self._again is None:
            return False
        self.body, self._again = self._again(), None
        self.url = self.begins_by_s = None
        return True


def _is_well(status: int) -> bool:
    return status < 300 or status == 304


def _has_shrunk(error: CurlewError, way: Way | None) -> bool:
    """Whether the queue that the client chose is no more, as the topic was made again with fewer,
    or takes no messages, as its shard drains."""
    is_closed = isinstance(error, ServiceError) and error.code == "NO_PERMISSION"
    return way is not None and way.may_choose and (is_closed or isinstance(error, QueueNotFound))
