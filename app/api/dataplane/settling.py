"""Settling over HTTP: by receipt handle, many at once or one by its URL; acks also with sends."""

from collections.abc import Sequence
from functools import partial
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET

from app.api.access.named_elsewhere import NamedElsewhere
from app.api.bodies.entry_counting import check_settled_count
from app.api.bodies.unpacking import read_unpacked
from app.api.dataplane.entry_results import answer_results, result_of
from app.api.dataplane.receiving import invisible_ms_of
from app.api.formats import media
from app.api.formats.decoding import (
    ack_decoder,
    dead_letter_decoder,
    extend_decoder,
    nack_decoder,
    receipt_change_decoder,
    settle_decoder,
)
from app.api.formats.merging import Entry, entry_of, named_once, traced
from app.api.formats.mq_headers import read_trace
from app.api.formats.wire import (
    ReceiptAnswer,
    ReceiptChange,
    SettleAnswer,
    SettleBody,
    SettleResult,
    all_acked,
    encode_line,
)
from app.api.http.errors import InvalidBody, entry_problem, render_problem
from app.api.http.parameters import Query, agreed, duration_ms_of, flag_of
from app.api.http.request_context import RequestContext, batch_too_large
from app.api.naming.request_namespace import stored
from app.api.telemetry.hook_calls import ask_hooks, good_messages, tell_hooks
from app.api.telemetry.request_metrics import RequestMetrics
from app.broker import Broker, results
from app.broker.results import AckedAndSent, BatchItem, Extend, Nack, Send, SendResult
from app.domain.access.actions import Action, Kind
from app.domain.errors import BatchTooLarge, CurlewError, IllegalInvisibleTime, InvalidRequest
from app.domain.handles.receipt import invalid_handle
from app.domain.limits import Limits

RECEIPT_PARAMETERS: Final = frozenset(
    {"action", "invisible", "invisible_ms", "delay", "delay_ms", "reason", "count_attempt"}
)
_NO_PARAMETERS: Final[frozenset[str]] = frozenset()
_ACTIONS: Final = ("extend", "nack", "dead_letter", "release")


class Settling:
    """Handlers of settle, its single-purpose forms, and receipts. Stateless."""

    def __init__(
        self, broker: Broker, limits: Limits, traffic: RequestMetrics, named: NamedElsewhere
    ) -> None:
        self._broker = broker
        self._named = named
        self._limits = limits
        self._traffic = traffic

    async def settle(self, exchange: RequestContext, topic: str, group: str) -> None:
        limits = self._limits
        source = await self._read(exchange, limits.batch_bytes_max)
        check_settled_count(source, limits.batch_messages_max)
        body = settle_decoder.decode(source)
        if body.sends:
            await self._ack_and_send(exchange, topic, group, body)
            return
        nacks, extends, letters = settles_of(body)
        await self._settle(
            exchange, topic, group, body.acks, nacks, extends, letters, body.releases
        )

    async def ack(self, exchange: RequestContext, topic: str, group: str) -> None:
        body = ack_decoder.decode(await self._read(exchange))
        await self._settle(exchange, topic, group, body.receipt_handles, (), ())

    async def nack(self, exchange: RequestContext, topic: str, group: str) -> None:
        body = nack_decoder.decode(await self._read(exchange))
        delay_ms = _delay_ms_of(body.delay, body.delay_ms)
        counts = body.count_attempt
        nacks = [Nack(handle, delay_ms, body.reason, counts) for handle in body.receipt_handles]
        await self._settle(exchange, topic, group, (), nacks, ())

    async def extend(self, exchange: RequestContext, topic: str, group: str) -> None:
        body = extend_decoder.decode(await self._read(exchange))
        invisible_ms = _required_ms(body.invisible, body.invisible_ms)
        extends = [Extend(handle, invisible_ms) for handle in body.receipt_handles]
        await self._settle(exchange, topic, group, (), (), extends)

    async def dead_letter(self, exchange: RequestContext, topic: str, group: str) -> None:
        body = dead_letter_decoder.decode(await self._read(exchange))
        letters = [Nack(handle, None, body.reason) for handle in body.receipt_handles]
        await self._settle(exchange, topic, group, (), (), (), letters)

    async def delete_receipt(self, exchange: RequestContext, handle: str) -> None:
        Query(exchange.query, _NO_PARAMETERS)
        self._find(exchange, handle)
        await self._broker.settler.settle_one(handle, "ack", namespace=exchange.namespace)
        await exchange.answer_empty(204, [])

    async def change_receipt(self, exchange: RequestContext, handle: str) -> None:
        query = Query(exchange.query, RECEIPT_PARAMETERS)
        self._find(exchange, handle)
        body = await self._unpacked(exchange)
        asked = ReceiptChange()
        if body:
            media.require_json(exchange.headers.get(b"content-type"))
            asked = receipt_change_decoder.decode(body)
        change = _change_of(asked, query)
        result = await self._broker.settler.settle_one(
            handle,
            change.action,
            delay_ms=change.delay_ms,
            invisible_ms=change.invisible_ms,
            reason=change.reason,
            count_attempt=change.count_attempt,
            namespace=exchange.namespace,
        )
        answer = ReceiptAnswer(
            receipt_handle=result.new_handle or handle,
            action=change.action,
            invisible_until_ms=UNSET
            if result.invisible_until_ms is None
            else result.invisible_until_ms,
        )
        await exchange.answer(200, [media.JSON_HEADER], encode_line(answer))

    def _find(self, exchange: RequestContext, handle: str) -> None:
        """Raise `InvalidReceiptHandle` for one that is none, or of what the caller may not read."""
        topic, group = self._broker.settler.names_of(handle)
        is_allowed = exchange.may(Action.SUB, Kind.TOPIC, topic)
        if not (exchange.may(Action.SUB, Kind.GROUP, group) and is_allowed):
            raise invalid_handle()

    async def _ack_and_send(
        self, exchange: RequestContext, topic: str, group: str, body: SettleBody
    ) -> None:
        if body.nacks or body.extends or body.dead_letters or body.releases:
            raise InvalidRequest(
                "sends go with acks only",
                hint="settle nacks, extends, dead_letters and releases in a request of their own",
            )
        self._check_count(len(body.acks) + len(body.sends))
        topics = [stored("topic", each.topic) for each in body.sends]
        self._named.topics_sent_to(exchange, topics)
        entries = named_once([entry_of(each) for each in body.sends], "/sends/{}")
        if trace := read_trace(exchange.headers):
            entries = [traced(entry, trace) for entry in entries]
        sends = [
            Send(topic_sent_to, entry.item)
            for topic_sent_to, entry in zip(topics, entries, strict=True)
        ]
        await self._ask_hooks(exchange, sends)
        figures = self._broker.statistics.group(group, topic)
        done = await self._broker.ack_and_produce.ack_and_send(topic, group, body.acks, sends)
        if figures is not None:
            acked = len(body.acks) if done.refused is None else 0
            figures.settled(acked, len(body.acks) - acked)
        answer = _answer_of(done, entries)
        if done.refused is None:
            self._count(sends)
            self._tell_hooks(exchange, done.sends)
            await exchange.answer(200, [media.JSON_HEADER], encode_line(answer))
            return
        status, headers, problem = render_problem(
            done.refused,
            instance=exchange.instance,
            request_id=exchange.request_id,
            extra=msgspec.to_builtins(answer),
        )
        await exchange.answer(status, headers, problem)

    async def _ask_hooks(self, exchange: RequestContext, sends: Sequence[Send]) -> None:
        """Topic by topic; one that may not be sent forbids the step."""
        topics = dict.fromkeys(send.topic for send in sends)
        for topic in topics if self._broker.hooks.check_sends else ():
            items = [send.item for send in sends if send.topic == topic]
            await ask_hooks(self._broker, exchange, "step", topic, partial(good_messages, items))

    def _count(self, sends: Sequence[Send]) -> None:
        """Messages that were stored together with acks."""
        statistics = self._broker.statistics
        for topic, item in sends:
            if isinstance(item, BatchItem):
                size = len(item.message.body)
                self._traffic.taken_in(1, size)
                statistics.stored(topic, statistics.topic(topic), 1, size)

    def _tell_hooks(
        self, exchange: RequestContext, stored: Sequence[SendResult | CurlewError]
    ) -> None:
        for each in stored if self._broker.hooks.hear_sends else ():
            if isinstance(each, SendResult):
                tell_hooks(self._broker, exchange, each.topic, each)

    async def _read(self, exchange: RequestContext, limit: int | None = None) -> bytes:
        Query(exchange.query, _NO_PARAMETERS)
        media.require_json(exchange.headers.get(b"content-type"))
        return await self._unpacked(exchange, limit)

    async def _unpacked(self, exchange: RequestContext, limit: int | None = None) -> bytes:
        limits = self._limits
        return await read_unpacked(
            exchange, limit or limits.body_bytes_max, limits, batch_too_large
        )

    async def _settle(
        self,
        exchange: RequestContext,
        topic: str,
        group: str,
        acks: Sequence[str],
        nacks: Sequence[Nack],
        extends: Sequence[Extend],
        dead_letters: Sequence[Nack] = (),
        releases: Sequence[str] = (),
    ) -> None:
        self._check_count(sum(map(len, (acks, nacks, extends, dead_letters, releases))))
        settled = await self._broker.settler.settle(
            *(topic, group),
            acks=acks,
            nacks=nacks,
            extends=extends,
            dead_letters=dead_letters,
            releases=releases,
        )
        failures = [each.error for each in settled if each.error is not None]
        if not failures and len(acks) == len(settled):
            await exchange.answer(200, [media.JSON_HEADER], all_acked(acks))
            return
        views = [view_of_settled(each) for each in settled]
        answer = SettleAnswer(views, len(settled) - len(failures), len(failures))
        await answer_results(exchange, [media.JSON_HEADER], answer, failures)

    def _check_count(self, count: int) -> None:
        if count == 0:
            raise InvalidBody(
                "there is no receipt handle to settle",
                hint="pass each message's receipt_handle as receive gave it",
            )
        if count > self._limits.batch_messages_max:
            raise BatchTooLarge(
                f"{count} receipt handles; at most {self._limits.batch_messages_max} are taken",
                fields={"limit_messages": self._limits.batch_messages_max},
            )


def settles_of(body: SettleBody) -> tuple[list[Nack], list[Extend], list[Nack]]:
    """Nacks, extends and dead letters of a body."""
    nacks = [
        Nack(
            entry.receipt_handle,
            _delay_ms_of(entry.delay, entry.delay_ms),
            entry.reason,
            entry.count_attempt,
        )
        for entry in body.nacks
    ]
    extends = [
        Extend(entry.receipt_handle, _required_ms(entry.invisible, entry.invisible_ms))
        for entry in body.extends
    ]
    letters = [Nack(each.receipt_handle, None, each.reason) for each in body.dead_letters]
    return nacks, extends, letters


def _answer_of(done: AckedAndSent, entries: Sequence[Entry]) -> SettleAnswer:
    views = [view_of_settled(each) for each in done.acks]
    sent = [
        result_of(index, entry, outcome)
        for index, (entry, outcome) in enumerate(zip(entries, done.sends, strict=True))
    ]
    if done.refused is None:
        return SettleAnswer(views, len(views), 0, sent)
    return SettleAnswer(views, 0, len(views), sent)


def view_of_settled(result: results.SettleResult) -> SettleResult:
    """What became of one handle, as JSON."""
    problem = None if result.error is None else entry_problem(result.error)
    return SettleResult(
        receipt_handle=result.receipt_handle,
        action=result.action,
        status=200 if problem is None else problem.status,
        new_receipt_handle=UNSET if result.new_handle is None else result.new_handle,
        invisible_until_ms=UNSET
        if result.invisible_until_ms is None
        else result.invisible_until_ms,
        error=UNSET if problem is None else problem,
    )


class _Change(NamedTuple):
    action: Literal["extend", "nack", "dead_letter", "release"]
    delay_ms: int | None = None
    invisible_ms: int | None = None
    reason: str | None = None
    count_attempt: bool = True


def _change_of(asked: ReceiptChange, query: Query) -> _Change:
    action = agreed("action", asked.action, query.choice("action", _ACTIONS))
    invisible_ms = invisible_ms_of(asked.invisible, asked.invisible_ms, query)
    delay_ms = _query_delay_ms(asked, query)
    reason = agreed("reason", asked.reason, query.text("reason") or None)
    counted = _counted(asked, query, action)
    if action == "extend":
        if delay_ms is not None or reason is not None:
            raise InvalidRequest("delay and reason belong to action=nack or dead_letter")
        if invisible_ms is None:
            raise _missing_invisible()
        return _Change("extend", invisible_ms=invisible_ms)
    if action == "nack":
        if invisible_ms is not None:
            raise InvalidRequest("invisible belongs to action=extend")
        return _Change("nack", delay_ms, reason=reason, count_attempt=counted)
    if action == "dead_letter":
        if invisible_ms is not None or delay_ms is not None:
            raise InvalidRequest("invisible and delay do not go with action=dead_letter")
        return _Change("dead_letter", reason=reason)
    if action == "release":
        if invisible_ms is not None or delay_ms is not None or reason is not None:
            raise InvalidRequest(
                "action=release takes nothing beside it",
                hint="the message is visible at once; to give it back later use action=nack",
            )
        return _Change("release")
    raise InvalidRequest(
        "action is missing",
        hint="say action=extend&invisible=60s, action=nack, action=dead_letter or action=release",
    )


def _counted(asked: ReceiptChange, query: Query, action: str | None) -> bool:
    given = query.text("count_attempt")
    by_query = None if given is None else flag_of("count_attempt", given)
    counted = agreed("count_attempt", asked.count_attempt, by_query)
    if counted is not None and action != "nack":
        raise InvalidRequest("count_attempt belongs to action=nack")
    return counted is not False


def _query_delay_ms(asked: ReceiptChange, query: Query) -> int | None:
    asked_ms = _delay_ms_of(query.text("delay"), query.integer("delay_ms"))
    return agreed("delay", _delay_ms_of(asked.delay, asked.delay_ms), asked_ms)


def _delay_ms_of(text: str | None, ms: int | None) -> int | None:
    return duration_ms_of("delay", text, ms, error=InvalidRequest)


def _required_ms(text: str | None, ms: int | None) -> int:
    invisible_ms = duration_ms_of("invisible", text, ms, error=IllegalInvisibleTime)
    if invisible_ms is None:
        raise _missing_invisible()
    return invisible_ms


def _missing_invisible() -> IllegalInvisibleTime:
    return IllegalInvisibleTime(
        "invisible is missing", hint='say for how long to keep the message: "invisible": "60s"'
    )
