"""Polls over HTTP: one request for all that a member of a group does.

A client that disconnects while it waits frees its waiter; retries that could not be handed over are
given back at once.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain
from operator import itemgetter
from typing import Final

from msgspec.structs import replace

from app.api.access.named_elsewhere import NamedElsewhere
from app.api.access.seen_conflicts import seen_conflicts
from app.api.bodies.plain_bodies import plain_records, unpack_deliveries
from app.api.bodies.unpacking import read_unpacked
from app.api.dataplane.client_watch import ClientWatch
from app.api.dataplane.polling.poll_answers import Given, PollAnswers
from app.api.dataplane.polling.poll_parts import (
    PollPart,
    poll_part_of,
    polled_header,
)
from app.api.dataplane.polling.poll_requests import (
    POLL_PARAMETERS,
    poll_decoder,
    request_of,
    wait_asked,
)
from app.api.dataplane.receive_parts import is_news, news_header, part_asked
from app.api.formats import media
from app.api.formats.prefer_header import wait_of
from app.api.http.parameters import Query
from app.api.http.rate_limit_headers import near_quota_headers
from app.api.http.request_context import (
    Headers,
    RequestContext,
    batch_too_large,
)
from app.api.naming.request_namespace import stored
from app.api.telemetry.callers import note_polled
from app.api.telemetry.request_metrics import RequestMetrics
from app.broker import Broker
from app.broker.polling.poll_values import PollRequest, PollResult, Settles
from app.domain.access.actions import Action, Kind
from app.domain.consumers.membership import QueueName
from app.domain.errors import InvalidReceiptHandle
from app.domain.handles.receipt import invalid_handle
from app.domain.limits import Limits
from app.store import packed_bytes, total_bytes

_OK: Final = 200
_TOPIC: Final = itemgetter(0)
"""Of the name of a queue, and of a subscription."""


class Polling:
    """Handler of polls. Stateless beside its collaborators."""

    def __init__(
        self, broker: Broker, limits: Limits, traffic: RequestMetrics, named: NamedElsewhere
    ) -> None:
        self._broker = broker
        self._named = named
        self._limits = limits
        self._traffic = traffic
        self._answers = PollAnswers(broker, limits.member_lease_ms)

    async def poll(self, exchange: RequestContext, group: str) -> None:
        limits = self._limits
        kind = media.poll_answer_kind(exchange.headers.get(b"accept"))
        query = Query(exchange.query, POLL_PARAMETERS)
        force_base64 = query.choice("body", ("auto", "base64")) == "base64"
        media.require_json(exchange.headers.get(b"content-type"))
        body = await read_unpacked(exchange, limits.body_bytes_max, limits, batch_too_large)
        asked = poll_decoder.decode(body)
        given_s = wait_asked(asked, query, limits)
        wait_s, headers = wait_of(exchange, given_s, limits.wait_seconds_max)
        request = request_of(asked, query, wait_s, limits, exchange.caller.name)
        await self._check_caller(exchange, group, asked.client_id, request)
        if request.force or request.replace_subscription:
            await self._named.force(exchange, group)
        if await self._did_part(exchange, group, asked.client_id, request):
            return
        part = poll_part_of(exchange)
        result: PollResult | None = None
        try:
            with ClientWatch(exchange.receive, exchange) as client:
                result = await self._look(client, group, asked.client_id, request, part)
            if wait_s > 0:
                headers += near_quota_headers(self._broker.long_polls.quota)
            result = _as_seen(exchange, result)
            await self._unpack(result)
            if part is not None:
                headers.append(polled_header(result, *_size_of(result)))
            if kind == "frames":
                given = await self._answer_frames(
                    *(exchange, asked.client_id, group, result, headers),
                    force_base64=force_base64,
                )
            else:
                text, given = self._answers.json(
                    group, asked.client_id, result, force_base64=force_base64
                )
                headers.append(media.JSON_HEADER)
                await exchange.answer_or_tell(_OK, headers, text)
        except BaseException:
            # It left meanwhile, or may not have the answer any more.
            if result is not None:
                self._broker.receiver.give_back(result.retries)
            raise
        self._count(exchange, group, asked.client_id, given, is_noted=part is None or part.joins)

    async def _did_part(
        self, exchange: RequestContext, group: str, client_id: str, request: PollRequest
    ) -> bool:
        """Do for another node what is not to look; False: it is a look, or a client asks."""
        poller = self._broker.poller
        news, part = part_asked(exchange) if is_news(exchange) else None, poll_part_of(exchange)
        if news is not None:
            asked = replace(request, joins=False)
            interval_ms = request.max_interval_ms
            with ClientWatch(exchange.receive, exchange) as client, ExitStack() as stack:
                if interval_ms is not None:
                    stack.enter_context(poller.intervals.polling(group, client_id, interval_ms))
                state = await poller.news(
                    *(group, client_id, asked, news.known, news.wait_s),
                    gone=client.gone,
                    watch=client.watch,
                )
            await exchange.answer_empty(204, [news_header(state)])
            return True
        if part is None or not part.takes:
            return False
        poller.check(request)  # as for a client, before anything is done
        taken = await poller.take(group, client_id, replace(request, joins=False))
        body = self._answers.taken(taken)
        await exchange.answer_or_tell(_OK, [media.JSON_HEADER], body)
        return True

    async def _look(
        self,
        client: ClientWatch,
        group: str,
        client_id: str,
        request: PollRequest,
        part: PollPart | None,
    ) -> PollResult:
        poller = self._broker.poller
        if part is None:
            return await poller.poll(
                group, client_id, request, gone=client.gone, watch=client.watch
            )
        poller.check(request)
        asked = replace(
            request,
            joins=part.joins,
            kept=frozenset(QueueName(stored("topic", topic), queue) for topic, queue in part.kept),
            max_messages=part.max_messages,
            max_bytes=part.max_bytes,
            wait_s=0.0,
        )
        if part.changed is not None:
            await self._broker.members.catch_up(group, part.changed)
        if not part.joins:  # its own node watches whether it polls
            return await poller.look(group, client_id, asked, gone=client.gone)
        with poller.intervals.polling(group, client_id, request.max_interval_ms):
            return await poller.look(group, client_id, asked, gone=client.gone)

    async def _unpack(self, result: PollResult) -> None:
        """Have plain bodies in all that is given."""
        await unpack_deliveries(result.retries)
        for part in result.parts:
            for index, read in enumerate(part.reads):
                if not packed_bytes(read.records):
                    continue
                plain = await plain_records(read.records, (), self._limits.stored_ratio_max)
                part.reads[index] = read._replace(records=plain)

    async def _check_caller(
        self, exchange: RequestContext, group: str, client_id: str, request: PollRequest
    ) -> None:
        """Raise unless the caller may read all topics that the poll names, and be the client."""
        profile = request.profile
        queues = chain(profile.queues, request.positions, request.paused)
        topics = dict.fromkeys(map(_TOPIC, chain(profile.subscriptions, queues)))
        for entries in (request.commits, request.hand_backs):
            if entries:
                topics |= dict.fromkeys([each.queue.topic for each in entries])
        exchange.require_each(Action.SUB, Kind.TOPIC, topics)
        await self._named.member(exchange, group, client_id)
        if request.settles is not None:
            self._check_handles(exchange, request.settles)

    def _check_handles(self, exchange: RequestContext, settles: Settles) -> None:
        """Raise for a handle of what the caller may not read; those that are none are told of
        later, each by itself."""
        handles = [*settles.acks, *settles.releases]
        handles += [each.receipt_handle for each in (*settles.nacks, *settles.dead_letters)]
        handles += [each.receipt_handle for each in settles.extends]
        for handle in handles:
            try:
                topic, group = self._broker.settler.names_of(handle)
            except InvalidReceiptHandle:
                continue
            is_read = exchange.may(Action.SUB, Kind.TOPIC, topic)
            if not (is_read and exchange.may(Action.SUB, Kind.GROUP, group)):
                raise invalid_handle()

    async def _answer_frames(
        self,
        exchange: RequestContext,
        client_id: str,
        group: str,
        result: PollResult,
        headers: Headers,
        *,
        force_base64: bool,
    ) -> Sequence[Given]:
        content_type, parts, given = self._answers.frames(
            group, client_id, result, force_base64=force_base64
        )
        headers.append((b"content-type", content_type))
        headers.append((b"mq-store-id", self._broker.store.store_id.hex().encode("ascii")))
        if result.retries:  # they are leased: who could not read the answer gives them back
            await exchange.answer_or_tell(_OK, headers, b"".join(parts))
        else:
            await exchange.answer_in_parts(_OK, headers, parts)
        return given

    def _count(
        self,
        exchange: RequestContext,
        group: str,
        client_id: str,
        given: Sequence[Given],
        *,
        is_noted: bool,
    ) -> None:
        total = 0
        for topic, count, size in given:
            total += count
            self._traffic.sent_out(count, size)
            figures = self._broker.statistics.group(group, topic)
            if figures is not None:
                figures.given(count, size)
        if not is_noted:  # by the node that the member has asked
            return
        note_polled(
            *(self._broker.clients, exchange, group),
            *(self._broker.members.filters_of(group, client_id), client_id, total),
        )


def _size_of(result: PollResult) -> tuple[int, int]:
    """Messages in an answer, and their bytes."""
    reads = [read for part in result.parts for read in part.reads]
    count = sum(len(read.records) for read in reads) + len(result.retries)
    size = sum(total_bytes(read.records) for read in reads)
    return count, size + sum(len(each.message.body) for each in result.retries)


def _as_seen(exchange: RequestContext, result: PollResult) -> PollResult:
    """Without the names of topics that other members read."""
    share = result.share
    if not share.conflicts:
        return result
    seen = seen_conflicts(exchange, share.conflicts)
    return replace(result, share=replace(share, conflicts=seen))
