"""Receives over several shards: from one shard at a time, in turn, and waiting for all of them; of
clients, and of this node for a stream of a group.

The node that was asked looks at each shard of the topic without waiting, beginning behind the one
that gave last, until one gives something: that is the answer. When none does it waits for all at
once (`shared_waits`), and is leased nothing meanwhile. What was leased for a client that has left
is released. A shard that cannot be asked stops nothing and is named in `partial`. A 429 of one is
passed by too; it is the answer when no other shard gives. Event loop only.
"""

import asyncio
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol, cast

import msgspec

from app.api.aims.across import PARTIAL, Document
from app.api.dataplane.client_watch import ClientWatch
from app.api.dataplane.receive_parts import SEEN, Seen, look_asked, seen_in
from app.api.dataplane.receiving import RECEIVE_PARAMETERS, wait_asked
from app.api.formats import media
from app.api.formats.decoding import receive_decoder
from app.api.formats.wire import ReceiveBody
from app.api.http.parameters import Query, agreed
from app.api.http.request_context import Headers, RequestContext
from app.api.relay.calls import CallAnswer, CallRequest, part_of, pass_on, path_of, query_of
from app.api.relay.consuming.backlogs import SLOW_SECONDS, WAIT_SECONDS, Backlogs, HeldUp
from app.api.relay.consuming.shared_waits import Key, SharedWaits, Waiter
from app.api.relay.fan_out import PART_SECONDS, Outcome, ask, ask_each, is_nowhere, refuse
from app.api.relay.relay import Relay
from app.broker.results import Takes
from app.domain.errors import CurlewError, ShardUnavailable

_TURNS_MAX: Final = 65_536
"""Groups of topics whose turn is remembered; when there are more, turns begin anew."""
_LATE: Final = "it answers late"
_HANDLE: Final = b"mq-receipt-handle"

_encode: Final = msgspec.json.encode
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class _Message(msgspec.Struct):
    receipt_handle: str


class _Messages(msgspec.Struct):
    messages: list[_Message]


_messages: Final = msgspec.json.Decoder(_Messages).decode


class Asked(msgspec.Struct, frozen=True):
    """What of a receive matters to who asks several shards."""

    wait_s: float
    is_counting: bool
    """It wants several messages, or waits on."""
    is_repeatable: bool
    changes: bool
    """It may end what others of the group do."""
    kind: tuple[object, ...]
    """Receives of one kind are given the same."""
    stream: str = ""
    """The stream that it is for."""


class Client(Protocol):
    """Who is to be given something: `ClientWatch`."""

    def gone(self) -> bool:
        """Whether nothing may be given any more."""
        ...

    def watch(self, end_wait: Callable[[], object]) -> None:
        """Call `end_wait`, and no earlier one any more, as soon as that is so."""
        ...


class ReceivesInTurn:
    """One per node."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._waits = SharedWaits(
            relay, lambda: relay.places.metadata.shard, relay.limits.waiters_max
        )
        self._held_up = HeldUp()
        self._backlogs = Backlogs(relay, self._held_up)
        self._gave_last: dict[Key, str] = {}
        self._releasing: set[asyncio.Task[Outcome]] = set()

    async def answered(self, exchange: RequestContext, names: tuple[str, ...]) -> bool:
        """Answer a receive of several shards; False: it is of this one, or not understood."""
        shards = self.shards_of(names[0])
        if len(shards) < 2:
            return False
        body = await self._relay.body_of(exchange)
        try:
            asked = _asked(exchange, body, self._relay.limits.wait_seconds_max)
        except CurlewError:
            return False  # the handler says what is wrong
        request = part_of(exchange, query_of(exchange), body)
        receive = self.begun(exchange, names, asked, request)
        try:
            with ClientWatch(exchange.receive, exchange) as client:
                await receive.find(client)
            await receive.answer()
        except BaseException:
            if receive.gives is not None:
                self.release(exchange, *receive.gives)
            raise
        if receive.gives is not None:
            self.note_turn(names, receive.gives[0])
        return True

    def begun(
        self, exchange: RequestContext, names: Key, asked: Asked, request: CallRequest
    ) -> "Receive":
        """One that looks at the shards in their turn; `request` is what it asks each. Whoever has
        it begun hands on what it gives, or calls `release`."""
        shards = self.shards_of(names[0])
        last = self._gave_last.get(names, "")
        order = [shard for shard in shards if shard > last]
        order += [shard for shard in shards if shard <= last]
        shared = _Shared(self._relay, self._waits, self._held_up, self._backlogs, self.release)
        return Receive(shared, exchange, names, asked, request, order)

    def note_turn(self, names: Key, shard: str) -> None:
        """A shard has given: the others are looked at before it."""
        if len(self._gave_last) >= _TURNS_MAX:
            self._gave_last.clear()
        self._gave_last[names] = shard

    def shards_of(self, name: str) -> list[str]:
        """That of this node, which says when it stops, and those that have queues of the topic."""
        places = self._relay.places
        topic = places.topic(name)
        own = places.metadata.shard
        if topic is None:
            return [own]
        # A queue in no shard is of nobody: its own operations say so.
        found = {topic.shard_of(queue_id) for queue_id in range(topic.queues)} - {None, ""}
        return sorted({own, *cast("set[str]", found)})

    def release(self, exchange: RequestContext, shard: str, answer: CallAnswer) -> None:
        """Let others have what nobody gets, with no attempt counted. Asked by the node itself, as
        the caller may have lost its right meanwhile."""
        body = _encode({"releases": _handles_in(answer)})
        folder, _, _ = path_of(exchange).rpartition(b"/")
        target = folder + b"/messages:settle"
        if exchange.namespace:
            target += b"?namespace=" + exchange.namespace.encode("ascii")
        request = CallRequest("POST", target, [media.JSON_HEADER], body, is_of_node=True)
        task = asyncio.ensure_future(ask(self._relay, exchange, shard, request))
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)
        task.add_done_callback(lambda _: exchange.let_go())


class _Shared(NamedTuple):
    """What all receives of a node share."""

    relay: Relay
    waits: SharedWaits
    held_up: HeldUp
    backlogs: Backlogs
    release: Callable[[RequestContext, str, CallAnswer], None]


class Receive:
    """One request."""

    def __init__(
        self,
        shared: "_Shared",
        exchange: RequestContext,
        key: Key,
        asked: Asked,
        request: CallRequest,
        order: list[str],
    ) -> None:
        self._relay, self._waits, self._held_up, self._said, self._release = shared
        self._exchange = exchange
        self._key = key
        self._asked = asked
        self._request = request
        self._order = order
        self._states: dict[str, str] = {}
        self.missing: dict[str, str] = {}
        """Shards that could not be asked, and why."""
        self.effects: list[object] = []
        """What it has ended of what others of the group did."""
        self._empty: dict[str, CallAnswer] = {}
        """Answers without messages."""
        self._problem: CallAnswer | None = None
        """Of a shard that could not do it; others may."""
        self.refusal: CallAnswer | None = None
        """It is so in all shards."""
        self._backlogs: dict[str, int] = {}
        """Messages that are left, by shards that have said it."""
        self.full: dict[str, CallAnswer] = {}
        """Shards of which the caller has as much as it may, and what they say."""
        self.gives: tuple[str, CallAnswer] | None = None
        """The shard that gives messages, and its answer with them."""

    @property
    def _is_settled(self) -> bool:
        return self.gives is not None or self.refusal is not None

    @property
    def heard(self) -> Iterable[str]:
        """Shards that have answered."""
        return self._backlogs.keys()

    async def begin(self) -> None:
        """Lease nothing: each shard only begins to give the group messages of the topic."""
        await self._ask_all(Takes.NOTHING, SLOW_SECONDS)

    async def find(self, client: Client) -> None:
        """Look, and wait, until there is something to answer."""
        asked = self._asked
        if asked.is_repeatable:
            await self._ask_all(Takes.EARLIER)
        if asked.changes and not self._is_settled:
            await self._ask_all(Takes.NOTHING)
        if self._is_settled:
            return
        deadline_s = asyncio.get_running_loop().time() + asked.wait_s
        is_counting = asked.is_counting and asked.wait_s > 0
        takes = Takes.ENOUGH if is_counting else Takes.WHAT_IS_THERE
        await self._look_at_each(takes)
        is_to_wait = asked.wait_s > 0 and self._empty and not self.full
        if not self._may_go_on(client) or not is_to_wait:
            return
        await self._wait(client, takes, deadline_s)
        if is_counting and self._may_go_on(client):
            await self._look_at_each(Takes.WHAT_IS_THERE)

    def _may_go_on(self, client: Client) -> bool:
        return not self._is_settled and not client.gone()

    async def _look_at_each(self, takes: Takes) -> None:
        # Who is known not to answer is asked last.
        order = sorted(self._order, key=lambda shard: not self._relay.is_up(shard))
        for shard in order:
            if self._is_passed_by(shard):
                continue
            await self._look(shard, takes)
            if self._is_settled:
                return

    def _is_passed_by(self, shard: str) -> bool:
        why = self._held_up.why(shard)
        if why is None:
            return False
        if self._held_up.take_probe(shard):
            self._said.ask_beside(self._exchange, self._key, shard, self._request)
        self.missing[shard], self._states[shard] = why, ""
        return True

    async def _ask_all(self, takes: Takes, seconds: float = PART_SECONDS) -> None:
        request = self._request._replace(asks=takes.value)
        if takes is Takes.EARLIER:
            found = await self._ask_for_earlier(request)
        else:
            requests = dict.fromkeys(self._order, request)
            found = await ask_each(self._relay, self._exchange, requests, seconds=seconds)
        for shard, outcome in found.items():
            seen = self._take(shard, outcome, is_earlier=takes is Takes.EARLIER)
            if takes is Takes.NOTHING and seen is not None:
                document = msgspec.json.decode(cast("CallAnswer", outcome).body or b"{}")
                self.effects += document.get("effects", [])

    async def _ask_for_earlier(self, request: CallRequest) -> dict[str, Outcome]:
        """Also those that are passed by, for a moment: one of them may have given it."""
        passed_by = dict.fromkeys(filter(self._is_passed_by, self._order), request)
        others = {shard: request for shard in self._order if shard not in passed_by}
        of_exchange = self._relay, self._exchange
        late, found = await asyncio.gather(
            ask_each(*of_exchange, passed_by, seconds=WAIT_SECONDS),
            ask_each(*of_exchange, others, seconds=SLOW_SECONDS),
        )
        for shard, outcome in late.items():
            if isinstance(outcome, CallAnswer):
                self._held_up.note_answer(shard)
        return {**found, **late}

    async def _look(self, shard: str, takes: Takes) -> Seen | None:
        asks = look_asked(takes, self._asked.stream)
        request = self._request._replace(asks=asks)
        look = asyncio.ensure_future(ask(self._relay, self._exchange, shard, request))
        try:
            in_time, _ = await asyncio.wait([look], timeout=PART_SECONDS)
        except BaseException:
            look.cancel()
            raise
        outcome = look.result() if in_time else self._leave(shard, look)
        seen = self._take(shard, outcome)
        self._states[shard] = "" if seen is None else seen.state
        return seen

    def _leave(self, shard: str, look: "asyncio.Task[Outcome]") -> CurlewError:
        """Go on without a shard that holds up the others, and ask at once whether it does so still,
        as it may be slow for this group alone. What it gives when it answers after all is
        released."""
        is_new = self._held_up.why(shard) is None
        self._held_up.note(shard, _LATE)
        if is_new:
            self._said.ask_beside(self._exchange, self._key, shard, self._request)

        def end(look: "asyncio.Task[Outcome]") -> None:
            outcome = None if look.cancelled() else look.result()
            if isinstance(outcome, CallAnswer):
                self._held_up.note_answer(shard)
                seen = seen_in(outcome.headers)
                if seen is not None and seen.given:
                    self._release(self._exchange, shard, outcome)
                    return
            self._exchange.let_go()

        look.add_done_callback(end)
        return ShardUnavailable(_LATE, hint="ask again in a moment", fields={"shard": shard})

    def _take(self, shard: str, outcome: Outcome, *, is_earlier: bool = False) -> Seen | None:
        """Note what a shard answered; what it has seen, when it could look. `is_earlier`: it was
        asked for an earlier answer alone, and counts nothing where the group has not begun."""
        if isinstance(outcome, CurlewError):
            self.missing[shard] = outcome.detail
            return None
        if outcome.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            self.missing[shard] = f"it answers {outcome.status}"
            self._problem = self._problem or outcome
            return None
        if self._asked.stream and self._is_not_known_yet(shard, outcome):
            self.missing[shard] = "it does not know the group yet"
            return None
        seen = seen_in(outcome.headers)
        if seen is None and outcome.status == HTTPStatus.TOO_MANY_REQUESTS:
            self.full[shard] = outcome
            return None
        if seen is None:
            self.refusal = self.refusal or outcome
            return None
        self.missing.pop(shard, None)
        self.full.pop(shard, None)
        if seen.given or seen.backlog or not is_earlier:
            self._backlogs[shard] = seen.backlog
            self._said.note(self._key, shard, seen.backlog)
        if seen.given:
            self.gives = self.gives or (shard, outcome)
        else:
            self._empty[shard] = outcome
        return seen

    def _is_not_known_yet(self, shard: str, outcome: CallAnswer) -> bool:
        """Whether another node has not heard of the group, or of the topic, which this one has."""
        metadata = self._relay.places.metadata
        if shard == metadata.shard or not is_nowhere(outcome):
            return False
        topic, group = self._key
        snapshot = metadata.snapshot
        return topic in snapshot.topics and group in snapshot.groups

    async def _wait(self, client: Client, takes: Takes, deadline_s: float) -> None:
        waiter = Waiter(self._exchange, self._request, self._asked.kind, self._states)
        self._waits.join(self._key, waiter)
        try:
            client.watch(waiter.end)
            while (turn := await waiter.wait(deadline_s)) is not None:
                if client.gone():
                    return
                turn.end(await self._look(turn.shard, takes))
                if self._is_settled or self.full:
                    return
                self._waits.look_on(self._key, self._states)
        finally:
            self._waits.leave(self._key, waiter)

    # --- the answer

    async def answer(self) -> None:
        """Send what was found."""
        exchange = self._exchange
        if self.refusal is not None and self.gives is None:
            await pass_on(exchange, self.refusal)
            return
        if self.gives is not None:
            await self._give(self.gives[1])
            return
        if self.full:
            await pass_on(exchange, next(iter(self.full.values())))
            return
        if self._empty:
            await self._answer_empty()
            return
        await refuse(exchange, self._problem, self.missing)

    async def _give(self, answer: CallAnswer) -> None:
        body = answer.body
        if answer.header(_HANDLE) is None:
            await self._count_elsewhere()
            members: dict[str, object] = dict(_members(body))
            members["backlog"] = sum(self._backlogs.values())
            body = _encode(self._with_rest(members)) + b"\n"
        headers = self._headers_of(answer)
        self._exchange.is_decided = True  # where the parts were, by the same policies
        await self._exchange.answer_or_tell(answer.status, headers, body)

    async def _count_elsewhere(self) -> None:
        """What is left in the shards that were not looked at, as they have said it, or say it at
        once. Others are missing."""
        known = self._backlogs.keys() | self.full.keys() | self.missing.keys()
        of_group = self._exchange, self._key
        asked: dict[asyncio.Task[Outcome], str] = {}
        for shard in self._order:
            if shard in known or self._is_passed_by(shard):
                continue
            told = self._said.told(self._key, shard)
            if told is not None:
                self._backlogs[shard] = told.backlog
                if told.is_to_be_asked:
                    self._said.ask_beside(*of_group, shard, self._request)
            elif self._relay.is_up(shard):
                asked[self._said.ask(*of_group, shard, self._request)] = shard
            else:
                self.missing[shard] = "it does not answer"
        if not asked:
            return
        done, late = await asyncio.wait(asked, timeout=WAIT_SECONDS)
        for task in done:
            self._take(asked[task], task.result())
        for shard in sorted(asked[task] for task in late):
            self.missing[shard] = _LATE
            self._held_up.note(shard, _LATE)

    async def _answer_empty(self) -> None:
        exchange = self._exchange
        exchange.is_decided = True
        first = next(iter(self._empty.values()))
        headers = self._headers_of(first)
        if first.status == HTTPStatus.NO_CONTENT:
            await exchange.answer_empty(first.status, headers)
            return
        parts = [cast("Document", msgspec.json.decode(each.body)) for each in self._empty.values()]
        backlog = sum(cast("int", part["backlog"]) for part in parts)
        merged: Document = {**parts[0], "backlog": backlog}
        if any(part.get("paused") for part in parts):
            merged["paused"] = True
        await exchange.answer(first.status, headers, _encode(self._with_rest(merged)) + b"\n")

    def _with_rest(self, members: Document) -> Document:
        if self.effects:
            members["effects"] = self.effects
        if self.missing:
            members[PARTIAL] = sorted(self.missing)
        return members

    def _headers_of(self, answer: CallAnswer) -> Headers:
        headers = [each for each in answer.own_headers if each[0] != SEEN]
        is_raw = answer.status == HTTPStatus.NO_CONTENT or _HANDLE in dict(headers)
        if is_raw and self.missing:
            headers.append((b"mq-partial", _encode(sorted(self.missing))))
        return headers


def _asked(exchange: RequestContext, body: bytes, wait_seconds_max: int) -> Asked:
    """Raises for what the handler refuses."""
    query = Query(exchange.query, RECEIVE_PARAMETERS)
    asked = receive_decoder.decode(body) if body else ReceiveBody()
    wait_s, _ = wait_asked(exchange, asked, query, wait_seconds_max)
    min_messages = agreed("min_messages", asked.min_messages, query.integer("min_messages", low=1))
    wanted = agreed("filter", asked.filter, query.text("filter"))
    client_id = asked.client_id or query.text("client_id") or exchange.headers.get(b"mq-client-id")
    is_repeatable = (asked.attempt_id or query.text("attempt_id")) is not None
    return Asked(
        wait_s,
        (min_messages or 1) > 1,
        is_repeatable,
        query.flag("force") or query.flag("replace_subscription"),
        (wanted, client_id, min_messages),
    )


def _handles_in(answer: CallAnswer) -> list[str]:
    handle = answer.header(_HANDLE)
    if handle is not None:
        return [handle.decode("ascii")]
    return [each.receipt_handle for each in _messages(answer.body).messages]
