"""Polls over HTTP: one request for all that a member of a group does.

A client that disconnects while it waits frees its waiter; retries that could not be handed over are
given back at once.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from app.api.access.named_elsewhere import NamedElsewhere
from app.api.access.seen_conflicts import seen_conflicts
from app.api.bodies.plain_bodies import plain_records, unpack_deliveries
from app.api.bodies.unpacking import read_unpacked
from app.api.dataplane.client_watch import ClientWatch
from app.api.dataplane.polling.poll_answers import Given, PollAnswers
from app.api.dataplane.polling.poll_requests import (
    POLL_PARAMETERS,
    poll_decoder,
    request_of,
    wait_asked,
)
from app.api.formats import media
from app.api.formats.prefer_header import wait_of
from app.api.http.parameters import Query
from app.api.http.rate_limit_headers import near_quota_headers
from app.api.http.request_context import (
    Headers,
    RequestContext,
    batch_too_large,
)
from app.api.telemetry.callers import note_polled
from app.api.telemetry.request_metrics import RequestMetrics
from app.broker import Broker
from app.broker.polling.poll_values import PollRequest, PollResult, Settles
from app.domain.access.actions import Action, Kind
from app.domain.errors import InvalidReceiptHandle
from app.domain.handles.receipt import invalid_handle
from app.domain.limits import Limits
from app.store import packed_bytes

_OK: Final = 200


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
        wait_s = wait_asked(asked, query, limits)
        wait_s, headers = wait_of(exchange, wait_s, limits.wait_seconds_max)
        request = request_of(asked, query, wait_s, limits, exchange.caller.name)
        self._check_caller(exchange, group, asked.client_id, request)
        result: PollResult | None = None
        try:
            with ClientWatch(exchange.receive, exchange) as client:
                result = await self._broker.poller.poll(
                    group, asked.client_id, request, gone=client.gone, watch=client.watch
                )
            if wait_s > 0:
                headers += near_quota_headers(self._broker.long_polls.quota)
            result = _as_seen(exchange, result)
            await self._unpack(result)
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
        self._count(exchange, group, asked.client_id, given)

    async def _unpack(self, result: PollResult) -> None:
        """Have plain bodies in all that is given."""
        await unpack_deliveries(result.retries)
        for part in result.parts:
            for index, read in enumerate(part.reads):
                if not packed_bytes(read.records):
                    continue
                plain = await plain_records(read.records, (), self._limits.stored_ratio_max)
                part.reads[index] = read._replace(records=plain)

    def _check_caller(
        self, exchange: RequestContext, group: str, client_id: str, request: PollRequest
    ) -> None:
        """Raise unless the caller may read all topics that the poll names, and be the client."""
        profile = request.profile
        topics = [*profile.topics]
        for queues in (profile.queues, request.positions, request.paused):
            topics += [queue.topic for queue in queues]
        topics += [each.queue.topic for each in request.commits]
        topics += [each.queue.topic for each in request.hand_backs]
        exchange.require_each(Action.SUB, Kind.TOPIC, topics)
        self._named.client(exchange, group, client_id)
        self._named.force(
            *(exchange, group), is_forced=request.force, replaces=request.replace_subscription
        )
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
    ) -> None:
        total = 0
        for topic, count, size in given:
            total += count
            self._traffic.sent_out(count, size)
            figures = self._broker.statistics.group(group, topic)
            if figures is not None:
                figures.given(count, size)
        note_polled(
            *(self._broker.clients, exchange, group),
            *(self._broker.members.filters_of(group, client_id), client_id, total),
        )


def _as_seen(exchange: RequestContext, result: PollResult) -> PollResult:
    """Without the names of topics that other members read."""
    share = result.share
    if not share.conflicts:
        return result
    seen = seen_conflicts(exchange, share.conflicts)
    return replace(result, share=replace(share, conflicts=seen))
