"""Carries a request to another node as it came, streaming both ways, and the answer back as it is.

It goes without the caller's credentials, in an envelope that says who asks. It is sent once: only a
refusal that says `NOT_LEADER`, before which nothing was done, is sent again, once. A connection
that ends behind a request leaves open what became of it. Event loop only.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Final

from app.api.aims.places import Metadata
from app.api.dataplane.client_watch import ClientWatch
from app.api.dataplane.pulls.read_choice import ASKS_STALE
from app.api.http.request_context import (
    BODY_IN_PLACE,
    HEAD,
    WHOLE_BODY,
    ClientGone,
    HeadMemory,
    RequestContext,
    batch_too_large,
)
from app.api.peers.connection import Interrupted, PeerConnection
from app.api.peers.pool import NotReached
from app.api.relay.calls import STAYS, head_lines, late_lines, target_of, whole_of
from app.api.relay.envelope import PREFIX, is_at_its_end
from app.api.relay.leaders import Leaders
from app.api.relay.streams.carried_streams import pass_answer_on
from app.api.relay.unanswered import interrupted, moved
from app.domain.access.refusals import NotPermitted, PolicyTooOld, Unauthorized
from app.domain.errors import CurlewError, RelayInterrupted, ShardUnavailable
from app.domain.limits import KIB, MIB, Limits
from app.runtime.direct import in_task

Body = bytes | bytearray | memoryview
READ_WHOLE_BYTES_MAX: Final = 2 * MIB
"""Of a body of known length that is read to one piece before it is sent on, as frames are by who
stores them: in parts it is copied four times. A larger one goes as it comes."""
JOINED_BYTES_MAX: Final = 64 * KIB
"""Of a body that is written with its head."""
SENT_AGAIN_MAX: Final = MIB // 16
"""Bytes of a body that a node which follows reads before it sends it on, so that it can send it to
another node where the first one leads no more."""
SILENT_SECONDS: Final = 5.0
"""How long a replica that follows may take for a read that the leader does not answer: nobody waits
for messages there, and it may stand still."""


class Carrier:
    """One per node."""

    def __init__(
        self,
        leaders: Leaders,
        metadata: Metadata,
        limits: Limits,
        refresh: Callable[[], Awaitable[None]],
    ) -> None:
        """`refresh` sees what other nodes have changed, as often as that is allowed."""
        self._leaders = leaders
        self._metadata = metadata
        self._limits = limits
        self._refresh = refresh

    async def carry(self, exchange: RequestContext, shard: str, *, sends: bool) -> None:
        """To the leader of a shard. Raises `NotLeader`, `ShardUnavailable`, `RelayInterrupted`,
        `ClientGone`."""
        # Out of the scope, where whoever looks after the client would take it away before the
        # request is sent once more.
        body: Body | None = exchange.scope.pop(WHOLE_BODY, None)
        if body is None and _is_read_whole(exchange):
            body = await exchange.read_own_body(READ_WHOLE_BYTES_MAX, batch_too_large)
        connection, url = await self._leaders.reach(exchange, shard)
        try:
            if not await self._exchange(exchange, connection, body, shard, sends=sends):
                return
        finally:
            self._leaders.release(url, connection)
        await in_task()  # the database may have to be waited for
        await self._metadata.refresh()
        connection, url = await self._leaders.reach(exchange, shard)
        try:
            if await self._exchange(exchange, connection, body, shard, sends=sends):
                raise ShardUnavailable(
                    f"the node that is said to lead shard {shard!r} does not",
                    hint="send again in a moment: another node is about to lead it",
                    fields={"shard": shard},
                )
        finally:
            self._leaders.release(url, connection)

    async def answered_by_replica(self, exchange: RequestContext, shard: str) -> bool:
        """Have a read answered by a replica in sync of a shard whose leader does not answer, as
        `MQ-Stale`; False: none does. Who is said to lead is asked last: it may be there, and lead
        no more."""
        view = self._metadata.snapshot.shards.get(shard)
        peers = self._leaders.peers
        if view is None or peers is None or is_at_its_end(exchange.scope):
            return False
        others = set(view.in_sync) - {self._leaders.node_id}
        in_sync = [member for member in view.members if member.node_id in others]
        for member in sorted(in_sync, key=lambda each: each.node_id == view.leader):
            try:
                connection = await peers.acquire(member.cluster_url, exchange.caller.name)
            except NotReached:
                continue
            seconds = None if member.node_id == view.leader else SILENT_SECONDS
            silent = _ended_if_silent(connection, seconds)
            try:
                if not await self._exchange(
                    exchange, connection, b"", shard, sends=False, asks=ASKS_STALE
                ):
                    return True
            except RelayInterrupted:
                continue
            finally:
                if silent is not None:
                    silent.cancel()
                self._leaders.release(member.cluster_url, connection)
        return False

    async def carry_whole(self, exchange: RequestContext, *, sends: bool) -> None:
        """Have the request answered by a node that leads, as if that one had been asked: by the
        leader of the own shard, or by another one where that is not reached. For a node that
        follows. Raises `NotLeader` where the client wants no relay, `ShardUnavailable` when nobody
        leads, `RelayInterrupted` and `ClientGone`."""
        body = await self._small_body_of(exchange)
        found: ShardUnavailable | None = None
        for is_again in (False, True):
            if is_again:
                with suppress(CurlewError):
                    await self._refresh()
            for shard in self._leaders.shards_from_here():
                try:
                    connection, url = await self._leaders.reach(exchange, shard)
                except ShardUnavailable as error:
                    found = found or error
                    continue
                try:
                    if not await self._exchange(
                        exchange, connection, body, shard, sends=sends, is_whole=True
                    ):
                        return
                finally:
                    self._leaders.release(url, connection)
        raise found or moved(self._metadata.shard)

    async def _small_body_of(self, exchange: RequestContext) -> bytes | None:
        """The body, to be sent again if need be; None: it is large, or nobody knows how large."""
        length = exchange.headers.get(b"content-length")
        if length is None and b"transfer-encoding" not in exchange.headers:
            return b""
        if WHOLE_BODY not in exchange.scope and (length is None or int(length) > SENT_AGAIN_MAX):
            return None
        return await exchange.read_body(max(self._limits.batch_bytes_max, MIB), batch_too_large)

    async def _exchange(
        self,
        exchange: RequestContext,
        connection: PeerConnection,
        body: Body | None,
        shard: str,
        *,
        sends: bool,
        is_whole: bool = False,
        asks: str = "",
    ) -> bool:
        """Send the request and pass the answer on; True: it is to be sent once more. Without a
        `body` it is read as it comes, and cannot be sent again. `is_whole`: it is done over all
        shards by whoever is asked, not for this shard alone."""
        watch = ClientWatch(exchange.receive, exchange)
        try:
            self._leaders.begin(connection)
            with watch:
                await self._send(exchange, connection, body, is_whole=is_whole, asks=asks)
                self._leaders.sent(connection, watch)
                can_repeat = body is not None
                return await _answered(exchange, connection, watch, shard, can_repeat=can_repeat)
        except Interrupted as error:
            if exchange.started:
                raise ClientGone from error  # the rest of the answer is not to be had
            raise interrupted(shard, sends=sends) from error
        except (NotPermitted, PolicyTooOld, Unauthorized) as refusal:  # by now
            if not exchange.started:  # else all of the answer is out
                refusal.outcome = "unknown" if sends else None
                raise
        finally:
            self._leaders.end(connection)
        return False

    async def _send(
        self,
        exchange: RequestContext,
        connection: PeerConnection,
        body: Body | None,
        *,
        is_whole: bool,
        asks: str,
    ) -> None:
        scope = exchange.scope
        connection.is_to_head = scope["method"] == "HEAD"
        head = self._head_of(exchange, is_whole=is_whole, asks=asks)
        if body is not None:
            length = b""
            if body or b"content-length" in exchange.headers:
                length = b"content-length: %d" % len(body)
            connection.may_be_whole = exchange.takes_written and not connection.is_to_head
            head += late_lines(exchange, length)
            if len(body) <= JOINED_BYTES_MAX:
                connection.write(b"".join((head, body)))
                return
            connection.write(head)
            connection.write(body)
            await connection.drain()
            return
        size = exchange.headers.get(b"content-length")
        is_chunked = size is None
        length = b"transfer-encoding: chunked" if size is None else b"content-length: " + size
        connection.write(head + late_lines(exchange, length))
        more = True
        while more:
            event = await exchange.receive()
            if event["type"] != "http.request":
                raise ClientGone
            part, more = event.get("body", b""), event.get("more_body", False)
            if part:
                connection.write(b"%x\r\n%b\r\n" % (len(part), part) if is_chunked else part)
            await connection.drain()
        if is_chunked:
            connection.write(b"0\r\n\r\n")

    def _head_of(self, exchange: RequestContext, *, is_whole: bool, asks: str) -> bytes:
        """Lines of the head that are the same for each request of a connection with an equal head,
        as long as caller and versions are."""
        leaders, scope = self._leaders, exchange.scope
        memory: HeadMemory | None = scope.get(HEAD)
        key = (exchange.caller, *leaders.versions(), is_whole, asks)
        if memory is not None and memory.carried is not None and memory.carried[0] == key:
            return memory.carried[1]
        headers = [
            each
            for each in scope["headers"]
            if each[0] not in STAYS and not each[0].startswith(PREFIX)
        ]
        if b"host" not in exchange.headers:  # of HTTP/1.0, which needs none
            headers.append((b"host", b"cluster"))
        envelope = leaders.envelope_of(exchange)._replace(is_whole=is_whole, asks=asks)
        headers += envelope.headers()
        head = head_lines(scope["method"], target_of(exchange), headers)
        if memory is not None:
            memory.carried = key, head
        return head


def _is_read_whole(exchange: RequestContext) -> bool:
    """Whether a body that has not come whole is read to one piece."""
    length = exchange.headers.get(b"content-length")
    return (
        length is not None
        and BODY_IN_PLACE in exchange.scope
        and int(length) <= READ_WHOLE_BYTES_MAX
    )


def _ended_if_silent(
    connection: PeerConnection, seconds: float | None
) -> asyncio.TimerHandle | None:
    """Ends it unless a head comes in so many seconds."""
    if seconds is None:
        return None

    def look() -> None:
        if not connection.status:
            connection.abort()

    return asyncio.get_running_loop().call_later(seconds, look)


async def _answered(
    exchange: RequestContext,
    connection: PeerConnection,
    watch: ClientWatch,
    shard: str,
    *,
    can_repeat: bool,
) -> bool:
    """Wait for the answer and pass it on; True: the request is to be sent once more. When the
    client is gone, or may not have it by now, `watch` says so."""
    try:
        await connection.head()
    except Interrupted:
        if watch.gone():
            return False
        raise
    if connection.status == HTTPStatus.MISDIRECTED_REQUEST:
        await whole_of(connection)
        if not can_repeat:
            raise moved(shard)
        return True
    if not watch.gone():
        await pass_answer_on(exchange, connection, watch)
    return False
