"""Answers with one result per entry: the status line shows whether all, some or none succeeded."""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from app.api.formats.merging import Entry
from app.api.formats.wire import BatchAnswer, BatchResult, SettleAnswer, encode_line
from app.api.http.errors import entry_problem, render_problem, status_of, with_outcome_of_send
from app.api.http.request_context import Headers, RequestContext
from app.broker.produce.send_deadlines import Unsafe
from app.broker.results import BatchItem, SendResult
from app.domain.errors import CurlewError

ENTRIES_A_TURN: Final = 1_000
"""Entries of a batch that one turn of the event loop makes results of, or lets go."""


async def answer_results(
    exchange: RequestContext,
    headers: Headers,
    answer: BatchAnswer | SettleAnswer,
    failures: Sequence[CurlewError],
) -> None:
    """200 when all succeeded, 207 when some did, else a problem with the results as a member."""
    if answer.succeeded:
        await exchange.answer(207 if failures else 200, headers, encode_line(answer))
        return
    leading = _leading(failures)
    status, problem_headers, body = render_problem(
        leading,
        instance=exchange.instance,
        request_id=exchange.request_id,
        extra={
            "results": answer.results,
            "succeeded": 0,
            "failed": len(failures),
        },
    )
    await exchange.answer(status, problem_headers, body)


def _leading(failures: Sequence[CurlewError]) -> CurlewError:
    """The failure that names the whole: a fault of ours before one of the caller's, else the
    first."""
    return next((error for error in failures if status_of(error) >= 500), failures[0])


async def let_others_turn(count: int) -> None:
    """A turn of the event loop between two parts of the work for so many entries, if many."""
    if count >= ENTRIES_A_TURN:
        await asyncio.sleep(0)


async def results_of(
    entries: Sequence[Entry], outcomes: Sequence[SendResult | CurlewError]
) -> list[BatchResult]:
    """What became of each entry; of many entries in several turns."""
    if len(entries) < ENTRIES_A_TURN:
        return [
            result_of(index, entry, outcome)
            for index, (entry, outcome) in enumerate(zip(entries, outcomes, strict=True))
        ]
    results: list[BatchResult] = []
    for index, (entry, outcome) in enumerate(zip(entries, outcomes, strict=True)):
        if index % ENTRIES_A_TURN == 0:
            await asyncio.sleep(0)
        results.append(result_of(index, entry, outcome))
    await asyncio.sleep(0)
    return results


def result_of(index: int, entry: Entry, outcome: SendResult | CurlewError) -> BatchResult:
    """What became of one entry, as the client is told."""
    name, item = entry.id, entry.item
    named = item.message.unique_id if isinstance(item, BatchItem) else None
    if named is None and isinstance(outcome, SendResult) and outcome[6] is None:  # as nearly all
        return BatchResult(index, 201, name, outcome[0], outcome[2], outcome[3], outcome[4])
    unique_id = UNSET if named is None else named
    if isinstance(outcome, CurlewError):
        problem = entry_problem(with_outcome_of_send(outcome))
        if isinstance(outcome, Unsafe):  # it has its place
            place = msgspec.convert({**outcome.fields, "index": index, "status": 504}, BatchResult)
            return replace(place, id=name, error=problem, unique_id=unique_id)
        return BatchResult(index, problem.status, name, error=problem, unique_id=unique_id)
    if outcome.recall_handle is not None:
        return BatchResult(
            index,
            201,
            name,
            outcome.message_id,
            outcome.queue_id,
            store_time_ms=outcome.store_time_ms,
            deliver_time_ms=UNSET if outcome.deliver_time_ms is None else outcome.deliver_time_ms,
            recall_handle=outcome.recall_handle,
            unique_id=unique_id,
        )
    return BatchResult(index, 201, name, outcome.message_id, *outcome[2:5], unique_id=unique_id)
