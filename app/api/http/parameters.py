"""Query parameters of the data plane: parsed once, typed, unknown ones refused. Pure.

Not here: the parameters of control-plane routes, which FastAPI declares; their queries are refused
by the same rules. A parameter is given once; a name that the operation does not know is an error
with the nearest known name as a hint.
"""

from collections.abc import Collection, ItemsView, Mapping
from functools import lru_cache
from math import inf
from typing import Final, Literal, TypeVar
from urllib.parse import parse_qsl

from app.api.http.errors import UnknownParameter, did_you_mean
from app.domain.durations import parse_duration_ms
from app.domain.errors import IllegalPage, IllegalWait, InvalidRequest
from app.domain.handles.page_sizes import usual_page_size
from app.domain.limits import DEFAULT_PAGE_SIZE, SEND_TIMEOUT_S_MAX

_T = TypeVar("_T")

_PARAMETERS_MAX: Final = 256
_REMEMBERED_MAX: Final = 512
"""Queries that are not parsed again."""
_REMEMBERED_BYTES_MAX: Final = 256
"""Of one: a longer one is parsed each time."""
_INT64_DIGITS: Final = 19
_SHOWN_CHARS: Final = 40
"""Of a number that is far too long."""
INT64_MAX: Final = 2**63 - 1
QUEUE_ID_MAX: Final = 2**31 - 1
_NAMED_POINTS: Final[dict[str, Literal["earliest", "latest"]]] = {
    "earliest": "earliest",
    "latest": "latest",
}


def parse_query(query: bytes) -> dict[str, str]:
    """The pairs of a query string; `InvalidRequest` when it is damaged or repeats a name."""
    if not query:
        return {}
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_PARAMETERS_MAX,
        )
    except ValueError as error:
        raise InvalidRequest(f"the query string cannot be read: {error}") from error
    parameters = dict(pairs)
    if len(parameters) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidRequest(
            f"query parameter {twice!r} is given twice", fields={"parameter": twice}
        )
    return parameters


def refuse_unknown(
    parameters: Mapping[str, str], known: Collection[str], *, prefix: str | None = None
) -> None:
    """Raise for the first parameter that is not in `known` and does not begin with `prefix`."""
    for name in parameters:
        if name in known or (prefix is not None and name.startswith(prefix)):
            continue
        raise UnknownParameter(
            f"unknown query parameter {name!r}",
            hint=did_you_mean(name, sorted(known)),
            fields={"parameter": name},
        )


def integer_of(
    name: str, text: str, *, low: int = 0, high: int = INT64_MAX, error: type[InvalidRequest]
) -> int:
    """`text` as a decimal integer within the bounds, or `error`."""
    digits = text[1:] if text[:1] == "-" else text
    if not (digits.isascii() and digits.isdigit()):
        raise error(f"{name} is {text!r}; it must be an integer", fields={"parameter": name})
    if len(digits) > _INT64_DIGITS or not low <= (value := int(text)) <= high:
        raise error(
            f"{name} is {text[:_SHOWN_CHARS]}; it must be from {low} to {high}",
            fields={"parameter": name, "min": low, "max": high},
        )
    return value


def point_of(text: str) -> Literal["earliest", "latest"] | int:
    """The point that `at` names: an end of the log, or a time in epoch milliseconds."""
    named = _NAMED_POINTS.get(text)
    if named is not None:
        return named
    if not text.isdecimal():
        raise InvalidRequest(
            f"at is {text!r}; it must be earliest, latest or epoch milliseconds",
            fields={"parameter": "at"},
        )
    return integer_of("at", text, error=InvalidRequest)


def agreed(name: str, first: _T | None, second: _T | None) -> _T | None:
    """What was given in either place; `InvalidRequest` for two that contradict each other."""
    if first is None or first == second:
        return second
    if second is None:
        return first
    raise InvalidRequest(
        f"{name} is given twice, as {first!r} and as {second!r}",
        hint="header, query parameter and body are ways to say the same: say it once",
        fields={"parameter": name},
    )


@lru_cache(maxsize=_REMEMBERED_MAX)
def _read(query: bytes, known: frozenset[str], prefix: str | None) -> Mapping[str, str]:
    """The parameters of a query that has no unknown ones: most clients repeat theirs. Nobody
    changes what this gives."""
    parameters = parse_query(query)
    refuse_unknown(parameters, known, prefix=prefix)
    return parameters


class Query:
    """The parameters of one request, with typed reads. Made per request; not kept."""

    __slots__ = ("_values",)

    def __init__(self, query: bytes, known: frozenset[str], *, prefix: str | None = None) -> None:
        read = _read if len(query) <= _REMEMBERED_BYTES_MAX else _read.__wrapped__
        self._values: Mapping[str, str] = read(query, known, prefix)

    def text(self, name: str) -> str | None:
        return self._values.get(name)

    def pairs(self) -> ItemsView[str, str]:
        """What is given: names and texts."""
        return self._values.items()

    def integer(
        self,
        name: str,
        *,
        low: int = 0,
        high: int = INT64_MAX,
        error: type[InvalidRequest] = InvalidRequest,
    ) -> int | None:
        text = self._values.get(name)
        return None if text is None else integer_of(name, text, low=low, high=high, error=error)

    def flag(self, name: str) -> bool:
        text = self._values.get(name)
        return text is not None and flag_of(name, text)

    def choice(self, name: str, choices: Collection[str]) -> str | None:
        text = self._values.get(name)
        if text is None or text in choices:
            return text
        raise InvalidRequest(
            f"{name} is {text!r}; it must be one of {', '.join(choices)}",
            fields={"parameter": name},
        )

    def wait_s(self, wait_seconds_max: int) -> float | None:
        text = self._values.get("wait")
        return None if text is None else wait_s_of(text, wait_seconds_max)


def flag_of(name: str, text: str) -> bool:
    """Whether a flag that is given is set; `InvalidRequest` for what is none."""
    if text in {"false", "0"}:
        return False
    if text in {"true", "1", ""}:
        return True
    raise InvalidRequest(
        f"{name} is {text!r}; it must be true or false", fields={"parameter": name}
    )


def timeout_s_of(text: str) -> float:
    """Seconds of a `timeout` of a send: a number of seconds (`5`, `0.5`) or a duration (`5s`)."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parse_duration_ms(text) / 1_000
        except ValueError as error:
            raise InvalidRequest(f"timeout: {error}", fields={"parameter": "timeout"}) from error
    if not 0 < seconds <= SEND_TIMEOUT_S_MAX:
        raise InvalidRequest(
            f"timeout is {text}; it must be more than 0 and at most {SEND_TIMEOUT_S_MAX} seconds",
            hint="leave it out to wait until the message is on the medium",
            fields={"parameter": "timeout", "max": SEND_TIMEOUT_S_MAX},
        )
    return seconds


def wait_s_of(wait: float | str, wait_seconds_max: int) -> float:
    """Seconds of a `wait`: a number of seconds (`20`, `0.5`) or a duration (`20s`)."""
    try:
        seconds = float(wait)
    except OverflowError:
        seconds = inf
    except ValueError:
        try:
            seconds = parse_duration_ms(str(wait)) / 1_000
        except ValueError as error:
            raise IllegalWait(f"wait: {error}", fields={"parameter": "wait"}) from error
    if not 0 <= seconds <= wait_seconds_max:
        raise IllegalWait(
            f"wait is {wait}; it must be from 0 to {wait_seconds_max} seconds",
            fields={"parameter": "wait", "max": wait_seconds_max},
        )
    return seconds


def page_size_of(text: str | None, most: int, usual: int = DEFAULT_PAGE_SIZE) -> int:
    """Entries of a page, at most `most`; of a request that names none: `usual`, if it may."""
    if text is None:
        return usual_page_size(most, usual)
    return integer_of("page_size", text, low=1, high=most, error=IllegalPage)


def duration_ms_of(
    name: str, text: str | None, ms: int | None, *, error: type[InvalidRequest]
) -> int | None:
    """Milliseconds of a duration given as text or, under the name with `_ms`, as a number."""
    if text is None:
        return ms
    if ms is not None:
        raise error(f"{name} and {name}_ms are both given", fields={"parameter": name})
    try:
        return parse_duration_ms(text)
    except ValueError as fault:
        raise error(f"{name}: {fault}", fields={"parameter": name}) from fault
