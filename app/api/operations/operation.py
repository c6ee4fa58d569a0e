"""`Operation`, the one description of a route. Pure; each is written where its handler is routed.

The router of the data plane, the routes of the control plane and the OpenAPI document are made from
it. An operation that does not say what it `needs` cannot be made, so that no program starts with
one; each request is decided by it (`api.access`), and the document shows it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct
from pydantic import BaseModel

from app.api.aims.across import Across
from app.api.aims.aim import Aim
from app.api.formats.media import JSON
from app.api.naming.request_namespace import kinds_of_path, stored_path_names
from app.domain.access.actions import Action as Action  # noqa: PLC0414  # for those that declare

Json = dict[str, Any]
Model = type[Struct] | type[BaseModel]
"""What is written in JSON, by its schema."""
Shape = Model | tuple[Model, ...] | Json
"""Of a body: a model, one of several models, or a JSON schema."""
Content = Model | Mapping[str, Shape]
"""Shapes by media type; a model alone is `application/json`."""

WHEN_ASKED: Final = "x-curlew-when-asked"
"""Member of an answer in the document, with further content in the form of `content`; and of an
operation, with further answers in the form of `responses`."""

_NOTHING: Final[Mapping[str, Shape]] = {}
_NAME: Final = re.compile(r"{(\w+)}")


Named = Literal["topic", "group", "producer", "cluster", "service"]
"""Resources that a path, a query or a body names; the cluster (nodes and their figures); and the
service, of which every client may know such things as limits."""
FoundById = Literal["receipt", "request", "transaction", "schedule", "operation"]
"""Resources that are looked up first. The action is one on the topic, the group and the producer
that they belong to."""
Waits = Literal["", "head", "body", "always"]
"""Whether a request may ask to wait until there is something: in its query or `Prefer`, in its JSON
body as well, or by being made."""
Resource = Named | FoundById
"""What a permission is for."""


class Body(NamedTuple):
    """The body that a request may have."""

    content: Content
    required: bool = False
    examples: Mapping[str, Json] = {}
    """Bodies by what they do, in JSON."""
    examples_by_kind: Mapping[str, Mapping[str, object]] = {}
    """The same for media types that have others."""

    def rendered(self) -> Json:
        """As OpenAPI has it."""
        content = _rendered(self.content)
        for kind, shape in content.items():
            given = self.examples_by_kind.get(kind, self.examples)
            if given:
                shape["examples"] = {
                    summary.replace(" ", "_"): {"summary": summary, "value": value}
                    for summary, value in given.items()
                }
        return {"required": self.required, "content": content}


class Answer(NamedTuple):
    """An answer that is no problem. Without content it has no body, or what its handler returns."""

    description: str = ""
    content: Content = _NOTHING
    headers: Mapping[str, Json] = {}
    when_asked: Content = _NOTHING
    """What is answered only to a request that asks for it, by `Accept`, its query or the type of
    its body. Not in the `content` of the document: generated clients would have to look at the type
    of each answer, and not one of them asks."""
    is_asked_for: bool = False
    """All of it is answered only to a request that asks for it: it stands apart, too."""

    def rendered(self) -> Json:
        """As OpenAPI has it."""
        answer: Json = {"description": self.description} if self.description else {}
        if self.content:
            answer["content"] = _rendered(self.content)
        if self.when_asked:
            answer[WHEN_ASKED] = _rendered(self.when_asked)
        if self.headers:
            answer["headers"] = self.headers
        return answer


class OperationWithoutNeeds(TypeError):
    """An operation that nobody decided on; a program with one does not start."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operation:
    """One operation of the API: a method of a path. Compared and hashed by identity."""

    operation_id: str
    route: str
    """Method and path, with the names of the path in braces: `GET /v1/topics/{topic}`."""
    summary: str
    needs: Mapping[Resource, Action]
    """What the caller has to be permitted. `UPDATE` of what does not exist yet is `CREATE`."""
    instead: Mapping[Resource, Action] = field(default_factory=dict)
    """Actions that are enough in place of those in `needs`."""
    makes: tuple[Resource, ...] = ()
    """What comes into being when it is named for the first time, which needs `CREATE` of it."""
    is_open: bool = False
    """Answered without credentials."""
    tag: str = "messages"
    description: str = ""

    mq_headers: Mapping[bytes, str] = field(default_factory=dict)
    """The `MQ-*` headers that it takes, and their query aliases; any other is refused."""
    headers: tuple[Json, ...] = ()
    """Further headers that it takes, as OpenAPI has parameters."""
    query: frozenset[str] = frozenset()
    """Query parameters, in the data plane. In the control plane they are arguments of handlers."""
    body: Body | None = None
    answers: Mapping[int, Answer] = field(default_factory=dict)
    problems: tuple[int, ...] = ()
    """Statuses of its problems, beside those of every operation (`answers.ALWAYS`), and 413 and 415
    for a body."""

    sends: bool = False
    """Its problems say whether the message was stored (`outcome`)."""
    reads: bool = False
    """Its answer may be large: refused while too much waits to be read."""
    may_be_stale: bool = False
    """A read that a replica may answer while nobody leads the shard."""
    waits: Waits = ""
    """Of the data plane: whether it may be parked, and counts in the quota of such requests."""
    leases_by_get: bool = False
    """A GET that changes something: no link and no redirect may lead a browser to it."""
    aim: Aim | None = None
    """The shard that it is for; None: it is done by the node that was asked."""
    across: Across | None = None
    """How it is done over all shards; None: it is of one."""
    by_each_node: bool = False
    """Answered by the node that was asked, also by one that follows the leader of its shard."""
    is_direct: bool = False
    """Begins without a task, and asks for one (`in_task`) when it needs more than confirmations."""

    method: str = field(init=False)
    path: str = field(init=False)
    names: tuple[str, ...] = field(init=False)
    """The names in the path, in their order: topic, group and others."""
    kinds: Mapping[str, str] = field(init=False)
    """Of those that belong to a namespace, what they name."""

    def __post_init__(self) -> None:
        if not self.needs:
            raise OperationWithoutNeeds(
                f"{self.route} does not say who may use it: give it needs={{resource: Action…}}, "
                "for instance needs={'topic': Action.GET} when its path or body names a topic"
            )
        method, _, path = self.route.partition(" ")
        object.__setattr__(self, "method", method)
        object.__setattr__(self, "path", path)
        object.__setattr__(self, "names", tuple(_NAME.findall(path)))
        object.__setattr__(self, "kinds", kinds_of_path(path))

    def stored_names(self, given: Sequence[str]) -> tuple[str, ...]:
        """The names in the path of the request that is served, as they are stored. Raises
        `InvalidRequest` for one that nothing can have."""
        return tuple(
            stored_path_names(self.kinds, dict(zip(self.names, given, strict=True))).values()
        )


def permissions_of(operation: Operation) -> Json:
    """What the document says of the actions that an operation takes, by resource."""
    said: Json = {"x-curlew-action": {name: str(each) for name, each in operation.needs.items()}}
    if operation.instead:
        said["x-curlew-instead"] = {name: str(each) for name, each in operation.instead.items()}
    if operation.makes:
        said["x-curlew-makes"] = list(operation.makes)
    return said


def models_of(content: Content) -> Iterator[Model]:
    """The models that a body or an answer is made of."""
    for shape in content.values() if isinstance(content, Mapping) else (content,):
        if isinstance(shape, tuple):
            yield from shape
        elif isinstance(shape, type):
            yield shape


def _rendered(content: Content) -> Json:
    shapes = content if isinstance(content, Mapping) else {JSON: content}
    return {kind: {"schema": _schema_of(shape)} for kind, shape in shapes.items()}


def _schema_of(shape: Shape) -> Json:
    if isinstance(shape, tuple):
        return {"anyOf": [_schema_of(model) for model in shape]}
    if isinstance(shape, type):
        return {"$ref": f"#/components/schemas/{shape.__name__}"}
    return shape
