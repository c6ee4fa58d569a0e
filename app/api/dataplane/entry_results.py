"""Answers with one result per entry: the status line shows whether all, some or none succeeded."""

from collections.abc import Sequence

import msgspec

from app.api.formats.wire import BatchAnswer, SettleAnswer, encode_line
from app.api.http.errors import render_problem, status_of
from app.api.http.request_context import Headers, RequestContext
from app.domain.errors import CurlewError


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
            "results": msgspec.to_builtins(answer.results),
            "succeeded": 0,
            "failed": len(failures),
        },
    )
    await exchange.answer(status, problem_headers, body)


def _leading(failures: Sequence[CurlewError]) -> CurlewError:
    """The failure that names the whole: a fault of ours before one of the caller's, else the
    first."""
    return max(failures, key=lambda error: status_of(error) >= 500)
