"""The namespace of a request: the one place where it is resolved, and where names go in and out.

The gateway resolves it once (`namespace_of_request`), after who asks is known and before anything
looks at a name. It keeps it as `RequestContext.namespace` and, when it has a name, in the context
of the request's task (`within`). From there on:

- in: names of a path are stored names before a handler sees them (`stored_path_names`); names in
  queries and bodies become such by `stored`. Below the API there are stored names only.
- out: `shown`, `shown_document` and `shown_error` take the request's own namespace away, and no
  other: a name of another namespace that got into an answer would be seen.

A request of the default namespace costs nothing beyond a look at its headers: names are stored as
they are given, and answers are not looked through. Any thread.
"""

from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple
from urllib.parse import unquote_plus

from typing_extensions import override

from app.domain.access.standing import Standing
from app.domain.errors import (
    CurlewError,
    Field,
    IllegalGroup,
    IllegalTopic,
    InvalidRequest,
    NamespaceNotFound,
)
from app.domain.names import (
    DEFAULT_NAMESPACE,
    NAMESPACE_SEPARATOR,
    is_in,
    refuse_separator,
    stored_name,
)

NAMESPACE_HEADER: Final = b"mq-namespace"
NAMESPACE_PARAMETER: Final = "namespace"
_PARAMETER_START: Final = NAMESPACE_PARAMETER.encode() + b"="

_current: Final[ContextVar[str]] = ContextVar("namespace", default=DEFAULT_NAMESPACE)

current_namespace: Final[Callable[[], str]] = _current.get
"""The namespace of the request that is served. The look-up itself: the data plane asks each time
that it writes an answer."""

_ERRORS: Final[Mapping[str, type[InvalidRequest]]] = {"topic": IllegalTopic, "group": IllegalGroup}
"""Of names that nothing of their kind can have; of other kinds it is `InvalidRequest`."""

NAMES_OF_PATHS: Final[Mapping[str, str]] = {
    "topic": "topic",
    "group": "group",
    "producer": "producer",
    "producer_group": "producer group",
}
"""Path parameters that name something of a namespace, and what. Others belong to what stands before
them in the path, or are ids."""
_SCHEDULE_PATH: Final = "/v1/schedules/{name}"

_NAME_MEMBERS: Final = frozenset(
    {
        *("topic", "group", "name", "producer", "producer_id", "producer_group", "to_topic"),
        *("consumer_group", "missing", "missing_topics", "topics", "groups", "by_target"),
        "brokers",
    }
)
"""Members of documents that are names, lists of names, or objects by name."""
_TEXT_MEMBERS: Final = frozenset({"detail", "hint", "reason", "problem"})
"""Members that are sentences, in which names may stand."""
_FOREIGN_MEMBERS: Final = frozenset(
    {"body", "message", "properties", "keys", "tag", "sharding_key", "filter", "text"}
)
"""Members that are the client's own: nothing in them is touched."""

Headers = list[tuple[bytes, bytes]]


class Resolved(NamedTuple):
    """A namespace, and what is left of headers and query without it."""

    namespace: str
    mq_headers: Headers
    query: bytes


def names_one(mq_headers: Headers, query: bytes) -> bool:
    """Whether a request says anything of a namespace."""
    return _PARAMETER_START in query or (bool(mq_headers) and NAMESPACE_HEADER in dict(mq_headers))


def namespace_of_request(mq_headers: Headers, query: bytes, known: Container[str]) -> Resolved:
    """The namespace that a request names in `MQ-Namespace` or `namespace=`; `""` is the default
    one. Raises `NamespaceNotFound` unless it is in `known`, and `InvalidRequest` for two that
    differ."""
    given = [value.decode("latin-1") for name, value in mq_headers if name == NAMESPACE_HEADER]
    parts = query.split(b"&")
    others = [part for part in parts if not part.startswith(_PARAMETER_START)]
    given += [
        unquote_plus(part[len(_PARAMETER_START) :].decode("latin-1"))
        for part in parts
        if part.startswith(_PARAMETER_START)
    ]
    namespace = given[0] if given else DEFAULT_NAMESPACE
    if len(set(given)) > 1:
        raise InvalidRequest(
            f"two namespaces are given, {given[0]!r} and {given[-1]!r}",
            hint="MQ-Namespace and namespace= are two ways to say the same: say it once",
            fields={"parameter": NAMESPACE_PARAMETER},
        )
    check_known(namespace, lambda: known)
    rest = [each for each in mq_headers if each[0] != NAMESPACE_HEADER]
    return Resolved(namespace, rest, b"&".join(others))


class _Every(Container[str]):
    """Has each."""

    @override
    def __contains__(self, _: object) -> bool:
        return True


EVERY: Final = _Every()
"""For those that are asked for later whether they are there."""


def check_known(namespace: str, known: Callable[[], Container[str]]) -> None:
    """Raise `NamespaceNotFound` unless it is among those that `known` gives."""
    if namespace != DEFAULT_NAMESPACE and namespace not in known():
        raise NamespaceNotFound(
            f"there is no namespace {namespace!r}",
            hint="PUT /v1/namespaces/{namespace} makes one; GET /v1/namespaces lists them",
        )


def check_reached(standing: Standing, namespace: str, known: Callable[[], Container[str]]) -> None:
    """As `check_known`; one in which the caller may do nothing is not there for it either. Who was
    permitted something by the names of the path may."""

    def reached() -> Container[str]:
        is_reached = bool(standing.granted) or standing.caller.reaches(namespace)
        return known() if is_reached else ()

    check_known(namespace, reached)


@contextmanager
def within(namespace: str) -> Iterator[None]:
    """What runs in the block, and the tasks and threads that it starts, are in this namespace. To
    be left in the task in which it was entered."""
    token = _current.set(namespace)
    try:
        yield
    finally:
        _current.reset(token)


def is_of_request(name: str) -> bool:
    """Whether what is stored so is in the namespace of the request that is served."""
    return is_in(_current.get(), name)


def stored(kind: str, name: str) -> str:
    """What the thing that a request calls `name` is stored as. Raises for a name with a `%`, which
    would reach into another namespace."""
    refuse_separator(kind, name, _ERRORS.get(kind, InvalidRequest))
    return stored_name(_current.get(), name)


def kinds_of_path(path: str) -> Mapping[str, str]:
    """Parameters of a path template that name something of a namespace, and what they name."""
    if path.startswith(_SCHEDULE_PATH):
        return {**NAMES_OF_PATHS, "name": "schedule"}
    return NAMES_OF_PATHS


def stored_path_names(kinds: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    """The names that a request has in its path, as they are stored."""
    return {
        parameter: stored(kinds[parameter], name) if parameter in kinds else name
        for parameter, name in names.items()
    }


def shown(name: str) -> str:
    """A stored name as the request's own clients call it."""
    namespace = _current.get()
    if not namespace:
        return name
    mark = stored_name(namespace, "")
    if name.startswith(NAMESPACE_SEPARATOR):  # a retry or dead-letter topic
        return name.replace(mark, "")
    return name.removeprefix(mark)


def shown_text(text: str) -> str:
    """A sentence in which stored names may stand."""
    namespace = _current.get()
    return text.replace(stored_name(namespace, ""), "") if namespace else text


def shown_document(document: object) -> object:
    """A document as JSON has it, with names as the request's own clients call them."""
    return _shown_members(document) if _current.get() else document


def shown_error(error: CurlewError) -> CurlewError:
    """The error, with names as the request's own clients call them."""
    if _current.get():
        error.detail = shown_text(error.detail)
        error.hint = None if error.hint is None else shown_text(error.hint)
        error.fields = {name: _shown_field(value) for name, value in error.fields.items()}
    return error


def _shown_field(value: Field) -> Field:
    if isinstance(value, str):
        return shown_text(value)
    return [shown_text(each) for each in value] if isinstance(value, list) else value


def _shown_members(value: object, member: str = "") -> object:
    if isinstance(value, dict):
        are_names = member in _NAME_MEMBERS
        return {
            shown(key) if are_names else key: (
                each if key in _FOREIGN_MEMBERS else _shown_members(each, key)
            )
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [_shown_members(each, member) for each in value]
    if not isinstance(value, str):
        return value
    if member in _NAME_MEMBERS:
        return shown(value)
    return shown_text(value) if member in _TEXT_MEMBERS else value
