"""Errors on the wire: the one table of code → HTTP status, and the problem document (RFC 9457).

Not here: what an error means (`domain.errors`), and where it is raised. Every answer of this
service that is not a success is made by `render_problem`: those of the data plane, of FastAPI and
of the gateway. The error classes below exist only over HTTP and therefore live here.

Called by every module of `app.api`; `error_codes` is served at `GET /v1/error-codes`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from app.api.http.rate_limit_headers import quota_headers
from app.api.http.request_context import NOT_KEPT
from app.api.naming.request_namespace import shown_error
from app.domain import errors
from app.domain.access.refusals import NotPermitted, Unauthorized
from app.domain.access.standing import Standing
from app.domain.errors import (
    CurlewError,
    InvalidRequest,
    MalformedBody,
    NotFound,
    TryAgain,
    UnsupportedContentType,
)
from app.domain.limits import PROBLEM_ENTRIES_MAX, PROBLEM_TEXT_CHARS_MAX
from app.domain.names import nearest

PROBLEM_CONTENT_TYPE: Final = b"application/problem+json"

STATUS_OF_CODE: Final[Mapping[str, int]] = {
    "ALREADY_DELIVERED": 409,
    "ALREADY_STORED": 409,
    "BAD_REQUEST": 400,
    "BROADCAST_GROUP": 409,
    "CONFLICT": 409,
    "CLIENT_NOT_FOUND": 404,
    "CONSUMER_GROUP_NOT_FOUND": 404,
    "CONSUMPTION_CONFLICT": 409,
    "SUBSCRIPTION_CONFLICT": 409,
    "DISK_FULL": 507,
    "DRAIN_REFUSED": 409,
    "EXPECTATION_FAILED": 417,
    "FLUSH_DISK_TIMEOUT": 504,
    "FORBIDDEN": 403,
    "FORBIDDEN_BY_HOOK": 403,
    "HAND_OVER_REFUSED": 409,
    "UNCLEAN_ELECTION_REFUSED": 409,
    "HOOK_FAILED": 503,
    "IDEMPOTENCY_KEY_REUSED": 422,
    "ILLEGAL_CONSUMER_GROUP": 400,
    "ILLEGAL_DELIVERY_TIME": 400,
    "ILLEGAL_FILTER_EXPRESSION": 400,
    "ILLEGAL_INVISIBLE_TIME": 400,
    "ILLEGAL_MEMBER": 400,
    "ILLEGAL_MESSAGE_ID": 400,
    "ILLEGAL_MESSAGE_KEY": 400,
    "ILLEGAL_MESSAGE_PROPERTY_KEY": 400,
    "ILLEGAL_MESSAGE_TAG": 400,
    "ILLEGAL_OFFSET": 400,
    "ILLEGAL_PAGE": 400,
    "ILLEGAL_POLLING_TIME": 400,
    "ILLEGAL_SETTING": 400,
    "ILLEGAL_TOPIC": 400,
    "INTERNAL_SERVER_ERROR": 500,
    "INVALID_RECALL_HANDLE": 400,
    "INVALID_RECEIPT_HANDLE": 400,
    "MALFORMED_BODY": 400,
    "MALFORMED_FRAME": 400,
    "MALFORMED_REQUEST": 400,
    "MEMBER_NOT_FOUND": 404,
    "MESSAGE_BODY_TOO_LARGE": 413,
    "MESSAGE_NOT_FOUND": 404,
    "MESSAGE_PROPERTIES_TOO_LARGE": 431,
    "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE": 409,
    "METADATA_UNAVAILABLE": 503,
    "METHOD_NOT_ALLOWED": 405,
    "NAMESPACE_NOT_EMPTY": 409,
    "NAMESPACE_NOT_FOUND": 404,
    "NOT_ACCEPTABLE": 406,
    "NOT_ENOUGH_REPLICAS": 503,
    "NOT_FOUND": 404,
    "NOT_LEADER": 421,
    "NO_PERMISSION": 403,
    "OFFSET_EXPIRED": 410,
    "OFFSET_OUT_OF_RANGE": 416,
    "OPERATION_NOT_FOUND": 404,
    "OTHER_SHARD": 409,
    "PAYLOAD_TOO_LARGE": 413,
    "POLICY_NOT_FOUND": 404,
    "POLICY_REGRESSED": 409,
    "POLICY_TOO_OLD": 503,
    "PRECONDITION_FAILED": 412,
    "PRINCIPAL_NOT_FOUND": 404,
    "PRODUCER_FENCED": 403,
    "PRODUCER_NOT_FOUND": 404,
    "PRODUCER_SEALED": 409,
    "QUEUE_NOT_FOUND": 404,
    "QUOTA_EXCEEDED": 403,
    "QUEUE_NOT_OWNED": 409,
    "RECEIPT_HANDLE_EXPIRED": 410,
    "RELAY_INTERRUPTED": 502,
    "REPLICATION_TIMEOUT": 504,
    "REPLICA_NEEDED": 409,
    "REPLICA_NOT_FOUND": 404,
    "REPLY_TIMEOUT": 504,
    "REQUEST_EXPIRED": 410,
    "REQUEST_HEADER_FIELDS_TOO_LARGE": 431,
    "REQUEST_IN_PROGRESS": 409,
    "REQUEST_NOT_FOUND": 404,
    "REQUEST_TARGET_TOO_LONG": 414,
    "REQUEST_TIMEOUT": 408,
    "SCHEDULE_NOT_FOUND": 404,
    "SEQUENCE_OUT_OF_ORDER": 409,
    "SETTING_FIXED": 409,
    "SHARD_NOT_FOUND": 404,
    "SHARD_UNAVAILABLE": 503,
    "SHUTTING_DOWN": 503,
    "SNAPSHOT_NOT_FOUND": 404,
    "STALE_GENERATION": 409,
    "STORE_FAILED": 503,
    "SUBSCRIPTION_NOT_FOUND": 404,
    "TIMERS_NOT_READY": 503,
    "TOO_MANY_CONNECTIONS": 503,
    "TOO_MANY_REQUESTS": 429,
    "SYSTEM_BUSY": 503,
    "TOPIC_NOT_FOUND": 404,
    "TOPIC_FULL": 507,
    "TRANSACTION_CONFLICT": 409,
    "TRANSACTION_NOT_FOUND": 404,
    "UNAUTHORIZED": 401,
    "UNSUPPORTED": 400,
    "UNSUPPORTED_MEDIA_TYPE": 415,
}
"""The only place where a code meets a status."""

_RETRY_AFTER_DEFAULT_S: Final = 1

TAKEN_ENCODINGS: Final = "gzip, deflate, zstd"
"""Of request bodies, as `Accept-Encoding` lists them."""


class UnsupportedFeature(InvalidRequest):
    """Something the contract plans and this version does not have; refused, never dropped."""

    code = "UNSUPPORTED"
    title = "This version does not have it"


class UnknownParameter(InvalidRequest):
    """A query parameter or `MQ-*` header that the operation does not know."""


class UnsupportedEncoding(UnsupportedContentType):
    """A `Content-Encoding` that is not taken. RFC 9110: the answer lists those that are."""

    def __init__(self, detail: str) -> None:
        super().__init__(
            detail,
            hint=f"taken are {TAKEN_ENCODINGS}; or send the body as it is",
            fields={"accept_encoding": TAKEN_ENCODINGS},
        )


class PathNotFound(NotFound):
    """No operation has this path."""


class MethodNotAllowed(CurlewError):
    """The path exists, the method does not; `allow` lists those that do."""

    code = "METHOD_NOT_ALLOWED"
    title = "The method is not allowed here"

    def __init__(self, method: str, allow: str) -> None:
        super().__init__(f"{method} is not allowed here", hint=f"allowed: {allow}")
        self.allow = allow


class NotAcceptable(InvalidRequest):
    """None of the media types in `Accept` can be produced."""

    code = "NOT_ACCEPTABLE"
    title = "The answer cannot be given in that media type"


class HeadersTooLarge(InvalidRequest):
    """The header block is over the limit."""

    code = "REQUEST_HEADER_FIELDS_TOO_LARGE"
    title = "The header block is too large"


class MalformedRequest(InvalidRequest):
    """Bytes that are not one unambiguous HTTP/1.1 request."""

    code = "MALFORMED_REQUEST"
    title = "The request is not well-formed HTTP"


class TargetTooLong(InvalidRequest):
    """The path and query are over the limit."""

    code = "REQUEST_TARGET_TOO_LONG"
    title = "The request target is too long"


class ExpectationFailed(InvalidRequest):
    """An `Expect` other than `100-continue`."""

    code = "EXPECTATION_FAILED"
    title = "The expectation cannot be met"


class RequestTooSlow(TryAgain):
    """The head or the body of the request did not come in time."""

    code = "REQUEST_TIMEOUT"
    title = "The request did not come in time"


class TooManyConnections(TryAgain):
    """A bound on open connections is reached, of the server or of one address."""

    code = "TOO_MANY_CONNECTIONS"
    title = "Too many connections"


class Forbidden(NotPermitted):
    """A Host or Origin that an open loopback server does not serve."""


class FieldError(NamedTuple):
    """One entry of `errors[]`: where (a JSON pointer, or a parameter name) and what."""

    where: str
    detail: str


class InvalidBody(MalformedBody):
    """A body with one or more faults, each with its JSON pointer."""

    def __init__(
        self, detail: str, faults: Sequence[FieldError] = (), *, hint: str | None = None
    ) -> None:
        super().__init__(detail, hint=hint)
        self.faults = tuple(faults)


class Problem(msgspec.Struct, omit_defaults=True):
    """The problem document; also the schema `Problem` of the OpenAPI document."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    instance: str
    request_id: str
    retryable: bool
    outcome: str | None = None
    hint: str | None = None
    errors: list[dict[str, str]] | None = None


class EntryProblem(msgspec.Struct, omit_defaults=True):
    """The error of one entry of a batch; instance and request id are the whole answer's."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    retryable: bool
    outcome: str | None = None
    hint: str | None = None
    errors: list[dict[str, str]] | None = None


def status_of(error: CurlewError) -> int:
    """The HTTP status of `error`."""
    return STATUS_OF_CODE[error.code]


def type_of(code: str) -> str:
    """The `type` member: a relative reference to the list that explains the code."""
    return f"/v1/error-codes#{code}"


def error_entries(error: CurlewError) -> list[dict[str, str]] | None:
    """`errors[]`, or None when the error has no place to point at."""
    if isinstance(error, InvalidBody) and error.faults:
        first = error.faults[:PROBLEM_ENTRIES_MAX]
        return [{"pointer": shortened(f.where), "detail": shortened(f.detail)} for f in first]
    if error.pointer is not None:
        return [{"pointer": shortened(error.pointer), "detail": shortened(error.detail)}]
    return None


def shortened(text: str) -> str:
    """`text`, or its two ends: a refusal quotes what was sent, however long that is."""
    if len(text) <= PROBLEM_TEXT_CHARS_MAX:
        return text
    end = PROBLEM_TEXT_CHARS_MAX // 4
    return f"{text[: PROBLEM_TEXT_CHARS_MAX - end - 1]}…{text[-end:]}"


def entry_problem(error: CurlewError) -> EntryProblem:
    """`error` as the `error` member of one batch or settle result."""
    error = shown_error(error)
    return EntryProblem(
        type=type_of(error.code),
        title=error.title,
        status=status_of(error),
        code=error.code,
        detail=shortened(error.detail),
        retryable=error.retryable,
        outcome=error.outcome,
        hint=error.hint and shortened(error.hint),
        errors=error_entries(error),
    )


def render_problem(
    error: CurlewError,
    *,
    instance: str,
    request_id: bytes,
    extra: Mapping[str, object] | None = None,
) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Status, headers (without length and request id) and body of the problem document."""
    error = shown_error(error)
    status = status_of(error)
    problem = Problem(
        type=type_of(error.code),
        title=error.title,
        status=status,
        code=error.code,
        detail=shortened(error.detail),
        instance=instance,
        request_id=request_id.decode("ascii"),
        retryable=error.retryable,
        outcome=error.outcome,
        hint=error.hint and shortened(error.hint),
        errors=error_entries(error),
    )
    document: dict[str, object] = msgspec.to_builtins(problem)
    for name, value in (*error.fields.items(), *(extra or {}).items()):
        document.setdefault(name, value)
    body = msgspec.json.encode(document) + b"\n"
    headers = [
        (b"content-type", PROBLEM_CONTENT_TYPE),
        NOT_KEPT,
    ]
    retry_after_s = error.retry_after_s
    if retry_after_s is None and isinstance(error, TryAgain):
        retry_after_s = _RETRY_AFTER_DEFAULT_S
    if retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % retry_after_s))
    if isinstance(error, TryAgain) and error.quota is not None:
        headers += quota_headers(error.quota)
    if isinstance(error, (errors.ShuttingDown, TooManyConnections)):
        headers.append((b"connection", b"close"))
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", error.allow.encode("ascii")))
    if isinstance(error, Unauthorized):
        headers.append((b"www-authenticate", b"Bearer"))
    if isinstance(error, UnsupportedEncoding):
        headers.append((b"accept-encoding", TAKEN_ENCODINGS.encode("ascii")))
    return status, headers, body


def hint_by_what_is_known(error: CurlewError, standing: Standing) -> None:
    """Give `error` its better hint, made of names that the caller may know of."""
    if error.suggest is not None:
        error.hint = error.suggest(standing.may_know) or error.hint


def did_you_mean(name: str, known: Sequence[str]) -> str | None:
    """A hint that names the nearest known name, or lists them all when they are few."""
    match = nearest(name, known)
    if match is not None:
        return f"did you mean {match!r}?"
    return "known here: " + ", ".join(sorted(known)) if known else None


class ErrorCode(NamedTuple):
    """One row of `GET /v1/error-codes`."""

    code: str
    status: int
    title: str
    retryable: bool
    description: str


def error_codes() -> list[ErrorCode]:
    """All codes this service can answer with, sorted, each explained by the class that names it."""
    rows: dict[str, ErrorCode] = {}
    for kind in _descendants(CurlewError):
        if "code" in vars(kind):
            row = ErrorCode(
                kind.code,
                STATUS_OF_CODE[kind.code],
                kind.title,
                kind.retryable,
                (kind.__doc__ or kind.title).strip().splitlines()[0],
            )
            rows.setdefault(kind.code, row)
    return [rows[code] for code in sorted(rows)]


def _descendants(kind: type[CurlewError]) -> Iterator[type[CurlewError]]:
    """All subclasses of `kind`, parents first."""
    for child in kind.__subclasses__():
        yield child
        yield from _descendants(child)


def with_outcome_of_send(error: CurlewError) -> CurlewError:
    """Set `outcome` where the broker left it open: a refusal stored nothing, a fault may have. And
    say RocketMQ's word for a shard that lacks replicas."""
    if error.outcome is None:
        fault = isinstance(error, errors.NodeFault)
        error.outcome = "unknown" if fault else "not_stored"
    if isinstance(error, errors.NotEnoughReplicas):
        error.fields["send_status"] = "SLAVE_NOT_AVAILABLE"
    return error
