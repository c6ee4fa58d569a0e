"""Polls over several shards: what the member has done goes to each shard first, then it stays a
member by the node that it has asked, then the queues of all shards are read, and waited for.

The order is that of a poll of one shard, so that nothing is lost between two steps: a queue is let
go of when what was done of it is written in its shard. A shard that does not do that, or cannot be
asked, keeps nothing from being read of the others: its entries are refused, and it is named in
`partial`. Shards have their turns by the positions of their queues. A poll that waits is told of
news by each shard (`shared_waits`), and looks where there are some. Retries are leased when they
are read; who has left before the answer gives them back. Event loop only.
"""

import asyncio
from http import HTTPStatus
from typing import Final

import msgspec
from typing_extensions import override

from app.api.dataplane.client_watch import ClientWatch
from app.api.dataplane.polling.poll_parts import PollPart, poll_part_asked, polled_in
from app.api.dataplane.polling.poll_requests import (
    POLL_PARAMETERS,
    poll_decoder,
    request_of,
    wait_asked,
)
from app.api.dataplane.polling.shapes import PollBody, PollQueue
from app.api.dataplane.receive_parts import Seen
from app.api.formats import media
from app.api.formats.prefer_header import wait_of
from app.api.http.parameters import Query
from app.api.http.request_context import RequestContext
from app.api.naming.request_namespace import stored
from app.api.relay.calls import (
    CallAnswer,
    CallRequest,
    parsed_query,
    part_of,
    pass_on,
    query_bytes,
    query_of,
)
from app.api.relay.consuming.poll_answers import PartAnswer, merged
from app.api.relay.consuming.poll_entries import (
    Done,
    PollEntries,
    body_to_read,
    body_to_release,
    refusal_of,
)
from app.api.relay.consuming.shared_waits import Key, SharedWaits, Turn, Waiter
from app.api.relay.fan_out import Outcome, all_parts, ask
from app.api.relay.relay import Relay
from app.api.relay.unanswered import too_slow
from app.broker.polling.poll_values import PollRequest
from app.domain.errors import CurlewError

_LOOKS_MAX: Final = 3
"""How often the group may change behind what was read; then what was read is not given."""
PART_OF_ANOTHER_SECONDS: Final = 3.0
"""How long another node may take for each step, beyond what the client wants to wait; a connection
to it is made within that. Less than half of the time that a client has for it (10 s), so that a
client whose node is silent may ask another one, which waits for the silent one's part in turn."""


class _Handle(msgspec.Struct):
    receipt_handle: str


_handle: Final = msgspec.json.Decoder(_Handle).decode


class PollsOfShards:
    """One per node."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._waits = SharedWaits(
            relay, lambda: relay.places.metadata.shard, relay.limits.waiters_max
        )
        self._releasing: set[asyncio.Task[object]] = set()

    async def answered(self, exchange: RequestContext, names: tuple[str, ...]) -> bool:
        """Answer a poll of several shards; False: it is of this one, or not understood."""
        relay = self._relay
        body = await relay.body_of(exchange)
        try:
            media.require_json(exchange.headers.get(b"content-type"))
            media.poll_answer_kind(exchange.headers.get(b"accept"))
            query = Query(exchange.query, POLL_PARAMETERS)
            asked = poll_decoder.decode(body)
            given_s = wait_asked(asked, query, relay.limits)
            wait_s, headers = wait_of(exchange, given_s, relay.limits.wait_seconds_max)
            request = request_of(asked, query, wait_s, relay.limits)
        except CurlewError:
            return False  # the handler says what is wrong
        entries = PollEntries(body, relay.places)
        own = relay.places.metadata.shard
        order = self._order(asked)
        if order == [own] and entries.bodies.keys() <= {own}:
            return False
        poll = _Poll(relay, self._waits, exchange, names[0], body, asked, request, order)
        try:
            with ClientWatch(exchange.receive, exchange) as client:
                refusal = await poll.answer(client, entries)
            if refusal is not None:
                await self._refuse(poll, refusal)
                return True
            exchange.is_decided = True  # where the parts were, by the same policies
            own_headers, text = poll.merged()
            await exchange.answer_or_tell(HTTPStatus.OK, headers + own_headers, text)
        except BaseException:
            self._release(poll)
            raise
        return True

    async def _refuse(self, poll: "_Poll", refusal: Outcome) -> None:
        self._release(poll)
        if isinstance(refusal, CurlewError):
            raise refusal
        await pass_on(poll.exchange, refusal)

    def _order(self, asked: PollBody) -> list[str]:
        """Shards in the order of their turns: by the positions, then by the queues of the topics;
        that of this node in any case."""
        places = self._relay.places
        own = places.metadata.shard
        found: dict[str, None] = {}
        for each in (*asked.positions, *self._queues(asked)):
            topic = places.topic(stored("topic", each.topic))
            if topic is not None and each.queue_id < topic.queues:
                # A queue in no shard is of nobody.
                found[places.of_queue(topic, each.queue_id) or own] = None
        found[own] = None
        return list(found)

    def _queues(self, asked: PollBody) -> list[PollQueue]:
        places = self._relay.places
        found: list[PollQueue] = []
        for each in asked.subscriptions:
            topic = places.topic(stored("topic", each.topic))
            seen: set[str | None] = set()
            for queue_id in range(0 if topic is None else topic.queues):
                shard = places.of_queue(topic, queue_id)
                if shard not in seen and shard != "":
                    seen.add(shard)
                    found.append(PollQueue(topic=each.topic, queue_id=queue_id))
        return found

    def _release(self, poll: "_Poll") -> None:
        """Let others have the retries that nobody gets, with no attempt counted. Asked by the node
        itself, as the caller may have lost its right meanwhile."""
        for shard, retries in poll.retries.items():
            if not retries:
                continue
            handles = [_handle(raw).receipt_handle for raw in retries]
            request = poll.released_with(body_to_release(poll.body, handles))
            task = asyncio.ensure_future(self._ask(poll, shard, request))
            self._releasing.add(task)
            task.add_done_callback(self._releasing.discard)
        poll.retries.clear()

    async def _ask(self, poll: "_Poll", shard: str, request: CallRequest) -> None:
        await ask(self._relay, poll.exchange, shard, request)
        poll.exchange.let_go()


class _PollWaiter(Waiter):
    """A poll that waits: its own node watches whether the member polls often enough."""

    def __init__(
        self,
        exchange: RequestContext,
        client_id: str,
        states: dict[str, str],
        own: tuple[str, CallRequest],
        elsewhere: CallRequest,
    ) -> None:
        """`own`: the shard of this node, and what it is asked; `elsewhere`: what the others are."""
        self._own_shard, request = own
        self._elsewhere = elsewhere
        super().__init__(exchange, request, client_id, states)

    @override
    def request_to(self, shard: str) -> CallRequest:
        return self.request if shard == self._own_shard else self._elsewhere


class _Poll:
    """One request."""

    def __init__(
        self,
        relay: Relay,
        waits: SharedWaits,
        exchange: RequestContext,
        group: str,
        body: bytes,
        asked: PollBody,
        request: PollRequest,
        order: list[str],
    ) -> None:
        self.exchange = exchange
        self.body = body
        self.retries: dict[str, list[msgspec.Raw]] = {}
        """By shards: leased, and to be given or released."""
        self._relay = relay
        self._waits = waits
        # Of this poll alone: another one of the same member has other positions, and may be one
        # whose connection is lost, which must not take the news.
        self._key: Key = (group, asked.client_id, f"{id(self):x}")
        self._asked = asked
        self._request = request
        self._order = order
        self._own = relay.places.metadata.shard
        self._to_own = body_to_read(body)
        self._to_others = body_to_read(body, "max_poll_interval")
        self._parts: dict[str, PartAnswer] = {}
        self._states: dict[str, str] = {}
        self._missing: dict[str, str] = {}
        self._silent: dict[str, CurlewError] = {}
        """Shards whose nodes have not answered a step of this poll in time."""
        self._done = Done([], [], [], [])
        self._changed = -1
        self._refusal: Outcome | None = None

    def asked_with(self, body: bytes, part: PollPart) -> CallRequest:
        """A call for a part of this poll."""
        return part_of(self.exchange, query_of(self.exchange), body)._replace(
            asks=poll_part_asked(part)
        )

    def released_with(self, body: bytes) -> CallRequest:
        """A call of the node itself, which is bound to no namespace and so has to name it."""
        query = query_of(self.exchange)
        if self.exchange.namespace:
            named = {**parsed_query(self.exchange), "namespace": self.exchange.namespace}
            query = query_bytes(named)
        request = part_of(self.exchange, query, body)
        return request._replace(asks=poll_part_asked(PollPart(takes=True)), is_of_node=True)

    async def answer(self, client: ClientWatch, entries: PollEntries) -> Outcome | None:
        """Do, look and wait, until there is something to answer; a refusal of the whole."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._request.wait_s
        if entries.bodies:
            take = PollPart(takes=True)
            requests = {
                shard: self.asked_with(body, take) for shard, body in entries.bodies.items()
            }
            found = await all_parts(requests, self._part)
            refusal = refusal_of(found)
            if refusal is not None:
                return refusal
            self._done = entries.done(found)
        await self._look_at_each()
        if self._may_wait() and not client.gone():
            await self._wait(client, deadline_s)
        await self._agree()
        return self._refusal

    async def _part(self, shard: str, request: CallRequest) -> Outcome:
        """A part of a shard. Of one that takes too long none is asked again for this poll."""
        if shard == self._own:
            return await ask(self._relay, self.exchange, shard, request)
        try:
            async with asyncio.timeout(PART_OF_ANOTHER_SECONDS):
                return await ask(self._relay, self.exchange, shard, request)
        except TimeoutError:
            silent = too_slow(shard, PART_OF_ANOTHER_SECONDS, sends=False)
            self._silent[shard] = silent
            return silent

    # --- looking

    @property
    def _has_found(self) -> bool:
        is_leased = any(self.retries.values())  # in a look behind which there was another one
        return is_leased or any(part.polled.has_found for part in self._parts.values())

    @property
    def _is_known(self) -> bool:
        """Whether the member has put its share into effect, as far as it says."""
        own, asked = self._parts[self._own], self._asked
        known = asked.assignment_id
        if known is None and asked.generation == own.value("generation"):
            known = own.assignment_id
        return known == own.assignment_id

    def _may_wait(self) -> bool:
        is_waiting = self._request.wait_s > 0 and self._refusal is None
        return is_waiting and not self._has_found and self._is_known

    async def _look_at_each(self) -> None:
        if self._order[0] != self._own:  # it is a member before others are asked
            await self._look(self._own, is_first=True, is_full=True)
        for shard in sorted(self._order, key=lambda each: not self._relay.is_up(each)):
            if self._refusal is not None:
                return
            is_first = shard == self._own and shard not in self._parts
            await self._look(shard, is_first=is_first)

    async def _look(
        self, shard: str, *, is_first: bool = False, is_full: bool = False
    ) -> Seen | None:
        """Ask a shard for what the answer has room for; with `is_full` for no message."""
        others = [part.polled for name, part in self._parts.items() if name != shard]
        messages = self._request.max_messages - sum(each.messages for each in others)
        size = self._request.max_bytes - sum(each.size for each in others)
        is_full = is_full or messages <= 0 or size <= 0
        part = PollPart(
            joins=is_first,
            changed=None if self._changed < 0 else self._changed,
            max_messages=0 if is_full else messages,
            max_bytes=max(size, 1),
            kept=self._done.undone if is_first else [],
        )
        body = self._to_own if shard == self._own else self._to_others
        request = self.asked_with(body, part)
        outcome = self._silent.get(shard) or await self._part(shard, request)
        seen = self._take(shard, outcome)
        self._states[shard] = "" if seen is None else seen.state
        return seen

    def _take(self, shard: str, outcome: Outcome) -> Seen | None:
        """Note what a shard has answered; what it has seen, when it could look."""
        polled = polled_in(outcome.headers) if isinstance(outcome, CallAnswer) else None
        if isinstance(outcome, CurlewError) or polled is None:
            self._parts.pop(shard, None)
            is_ours = shard == self._own
            if is_ours or refusal_of({shard: outcome}) is not None:
                self._refusal = outcome
            elif isinstance(outcome, CurlewError):
                self._missing[shard] = outcome.detail
            else:
                self._missing[shard] = f"it answers {outcome.status}"
            return None
        assert isinstance(outcome, CallAnswer)
        self._missing.pop(shard, None)
        part = self._parts[shard] = PartAnswer(outcome, polled)
        self.retries.setdefault(shard, []).extend(part.retries)
        self._changed = max(self._changed, polled.changed)
        return Seen(polled.state, 0, polled.messages)

    async def _agree(self) -> None:
        """Have all shards answer for the same share: the group may have changed between two."""
        for _ in range(_LOOKS_MAX):
            old = [shard for shard, part in self._parts.items() if self._is_old(shard, part)]
            if self._refusal is not None or not old:
                break
            for shard in sorted(old, key=lambda each: each != self._own):
                await self._look(shard)
        if self._refusal is not None:
            return
        share = self._parts[self._own].assignment_id
        for shard, part in self._parts.items():
            if part.assignment_id != share:
                part.without_queues()
                self._missing[shard] = "the group changes"

    def _is_old(self, shard: str, part: PartAnswer) -> bool:
        if shard == self._own:
            return part.polled.changed < self._changed
        own = self._parts.get(self._own)
        return own is not None and part.assignment_id != own.assignment_id

    # --- waiting

    async def _wait(self, client: ClientWatch, deadline_s: float) -> None:
        waiter = self._waiter()
        self._waits.join(self._key, waiter)
        try:
            client.watch(waiter.end)
            while (turn := await waiter.wait(deadline_s)) is not None:
                if client.gone():
                    return
                await self._have_turn(turn)
                if self._refusal is not None or self._has_found or not self._is_known:
                    return
                self._waits.look_on(self._key, self._states)
        finally:
            self._waits.leave(self._key, waiter)

    def _waiter(self) -> Waiter:
        exchange, query = self.exchange, query_of(self.exchange)
        own = self._own, part_of(exchange, query, self._to_own)
        elsewhere = part_of(exchange, query, self._to_others)
        return _PollWaiter(exchange, self._asked.client_id, self._states, own, elsewhere)

    async def _have_turn(self, turn: Turn) -> None:
        self._silent.pop(turn.shard, None)  # there are news of it
        seen = await self._look(turn.shard)
        turn.end(seen)
        own = self._parts.get(self._own)
        if own is not None and self._refusal is None and own.polled.changed < self._changed:
            await self._look(self._own)

    # --- the answer

    def merged(self) -> tuple[list[tuple[bytes, bytes]], bytes]:
        """Headers and body."""
        order = [shard for shard in self._order if shard in self._parts]
        gave = [place for place, shard in enumerate(order) if self._parts[shard].polled.messages]
        first = gave[-1] + 1 if gave else 0
        parts = [self._parts[shard] for shard in (*order[first:], *order[:first])]
        # Also of a shard that could not be asked again: they are leased.
        retries = [raw for shard in self._order for raw in self.retries.get(shard, ())]
        is_waiting = self._request.wait_s > 0
        return merged(
            self._parts[self._own],
            parts,
            retries,
            self._done,
            sorted(self._missing),
            is_waiting=is_waiting,
        )
