"""From an answer that is no success to the exception that says so. Pure."""

import json
from typing import Any, Final

from curlew_client.errors import (
    ConnectionFailed,
    CurlewError,
    NotCurlew,
    Outcome,
    class_of,
)
from curlew_client.wire.http1 import Answer

_MEMBERS: Final = frozenset(
    {
        *("type", "title", "status", "code", "detail", "instance", "request_id"),
        *("retryable", "hint", "outcome"),
    }
)
_OF_PROXIES: Final = frozenset({502, 503, 504})
_OUTCOMES: Final = frozenset({"not_stored", "unknown", "stored"})


def error_of(answer: Answer, url: str) -> CurlewError:
    """What a refusal says; `NotCurlew` when it is no problem document of a node."""
    headers = answer.headers
    try:
        problem = json.loads(answer.body)
    except ValueError:
        problem = None
    if not isinstance(problem, dict) or not isinstance(problem.get("code"), str):
        return _foreign(answer.status, headers, url)
    return error_of_problem(problem, answer.status, headers.get("retry-after"))


def error_of_problem(
    problem: dict[str, Any], status: int, retry_after: str | None = None
) -> CurlewError:
    """The exception of a problem document, or of the error of one entry."""
    code = problem["code"]
    outcome: Outcome | None = problem.get("outcome")
    return class_of(code, status)(
        str(problem.get("detail") or problem.get("title") or code),
        code=code,
        status=status,
        hint=problem.get("hint"),
        outcome=outcome if outcome in _OUTCOMES else None,
        retryable=problem.get("retryable") is True,
        retry_after_s=float(retry_after) if retry_after and retry_after.isdigit() else None,
        request_id=problem.get("request_id"),
        fields={name: value for name, value in problem.items() if name not in _MEMBERS},
    )


def check_is_curlew(answer: Answer, url: str) -> None:
    """Raise `NotCurlew` when a success does not come from a node, or from one behind a proxy."""
    if "mq-request-id" not in answer.headers:
        raise _foreign(answer.status, answer.headers, url)


def _foreign(status: int, headers: dict[str, str], url: str) -> CurlewError:
    server = headers.get("server", "")
    who = f"{url} answers with status {status}" + (f" ({server})" if server else "")
    if status in _OF_PROXIES:
        return ConnectionFailed(f"{who}: a proxy there does not reach a Curlew node", "unknown")
    return NotCurlew(
        f"{who}, and not as a Curlew node does; is this the address of the node, with its port "
        "and, behind a proxy, its path?"
    )
