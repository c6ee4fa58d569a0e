"""Whether a caller may have an operation on the names in its path: one look-up when it was asked
before.

Decided by name, before anything is looked up, so that the answer is the same whether or not there
is such a thing. What a request names elsewhere (body, headers, query, ids) its handler asks.
Positive decisions are remembered with their caller, who is made anew when something changes in who
may do what: at most `DECISIONS_MAX` in all, then remembering starts anew. Event loop only.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from app.api.operations.operation import Operation
from app.domain.access.actions import CLUSTER, Action, Kind
from app.domain.access.caller import Caller, not_permitted, target_of
from app.domain.access.standing import (
    CHANGING,
    Permission,
    Requirement,
    Standing,
    refuse_stale,
)
from app.domain.limits import DECISIONS_MAX

_TOPIC: Final = Kind.TOPIC


class MadeByUse(Protocol):
    """What is made when it is named for the first time; may change at any time."""

    @property
    def topics(self) -> bool: ...
    @property
    def groups(self) -> bool: ...


_KIND_OF_NAME: Final = {
    "topic": Kind.TOPIC,
    "group": Kind.GROUP,
    "producer": Kind.PRODUCER,
    "producer_group": Kind.PRODUCER,
}
"""What a name in a path names."""


class PathNeed(NamedTuple):
    """An action on what a name of the path names."""

    action: Action
    kind: Kind
    place: int
    """Of the name in the path; -1: none, it is on the cluster."""
    instead: Action | None = None
    """An action that is enough as well."""


class PathNeeds(NamedTuple):
    """What of an operation's needs the path tells."""

    needs: tuple[PathNeed, ...]
    makes: tuple[tuple[Kind, int], ...]
    """Things that are made on first use."""
    is_whole: bool
    """Nothing else has to be asked before it can succeed."""
    changes: bool
    """It waits while the database is away."""


def path_needs_of(operation: Operation) -> PathNeeds:
    """What the path of an operation tells of its needs."""
    places = {
        _KIND_OF_NAME[name]: index
        for index, name in enumerate(operation.names)
        if name in _KIND_OF_NAME
    }
    needs: list[PathNeed] = []
    is_whole = True
    for resource, action in operation.needs.items():
        if resource == "service":
            continue
        if resource == "cluster":
            needs.append(PathNeed(action, Kind.CLUSTER, -1))
        elif resource in Kind.__members__.values() and Kind(resource) in places:
            place = places[Kind(resource)]
            needs.append(PathNeed(action, Kind(resource), place, operation.instead.get(resource)))
        else:
            is_whole = False
    makes = tuple((Kind(each), places[Kind(each)]) for each in operation.makes)
    changes = operation.method != "GET" and not CHANGING.isdisjoint(operation.needs.values())
    return PathNeeds(tuple(needs), makes, is_whole, changes)


class OperationRights:
    """Decides for all operations of a node. One per server."""

    def __init__(
        self,
        operations: Iterable[Operation],
        made_by_use: MadeByUse,
        is_there: Callable[[Kind, str], bool],
    ) -> None:
        """`is_there` says whether there is a topic or group of that name; it is asked where its use
        makes it."""
        self._made_by_use = made_by_use
        self._is_there = is_there
        self._needs = {each: path_needs_of(each) for each in operations}
        self._by_id = {each.operation_id: each for each in self._needs}
        self._memories: list[dict[object, Any]] = []
        """Of callers that something was decided for."""
        self._remembered = 0

    def require(
        self, standing: Standing, operation: Operation, names: tuple[str, ...]
    ) -> Permission | None:
        """Raise `NotPermitted` unless the caller may; `names` are those of the path, in order. What
        is given holds for this caller, who is another one when the keyring is (see `permit`); None:
        nobody in particular asks."""
        caller = standing.caller
        if caller.name is None:
            return None
        decided = caller.decided
        found: Permission | None = None if decided is None else decided.get((operation, names))
        if found is None:
            found = self._decide(caller, operation, names)
            self._remember(decided, (operation, names), found)
        self.permit(standing, found)
        return found

    def permit(self, standing: Standing, permission: Permission) -> None:
        """Permit what was decided for the caller. Raises, too, by what may have changed meanwhile:
        whether there is what its use makes, and the age of what is known."""
        granted, makes, is_whole, changes = permission
        if changes:
            refuse_stale(standing.caller)
        by_use = self._made_by_use
        for action, kind, name in makes:
            is_made = by_use.topics if kind is _TOPIC else by_use.groups
            if is_made and not self._is_there(kind, name):
                standing.caller.require(action, kind, name)
                standing.makes = True
        standing.granted = granted
        if is_whole:
            standing.is_decided = True

    def _remember(self, decided: dict[object, Any] | None, key: object, found: Permission) -> None:
        if decided is None:
            return
        if self._remembered >= DECISIONS_MAX:
            for each in self._memories:
                each.clear()
            self._memories.clear()
            self._remembered = 0
        if not decided:
            self._memories.append(decided)
        decided[key] = found
        self._remembered += 1

    def operation(self, operation_id: str) -> Operation:
        """The operation of that id."""
        return self._by_id[operation_id]

    def require_by_id(
        self, standing: Standing, operation_id: str, in_path: Mapping[str, str]
    ) -> None:
        """As `require`, for the operation of that id and the names that a router has found."""
        operation = self._by_id[operation_id]
        self.require(standing, operation, tuple([in_path[name] for name in operation.names]))

    def _decide(self, caller: Caller, operation: Operation, names: tuple[str, ...]) -> Permission:
        path = self._needs[operation]
        granted: list[Requirement] = []
        makes: list[Requirement] = []
        made = dict(path.makes)
        for action, kind, place, instead in path.needs:
            if place < 0:
                if not caller.decide(action, CLUSTER).is_allowed:
                    raise not_permitted(caller, action, CLUSTER)
                granted.append(Requirement(action, kind, ""))
                continue
            name = names[place]
            if action is Action.UPDATE and kind in made:
                # Making and changing have one address; which of both it is its handler asks.
                _either(caller, action, Action.CREATE, kind, name)
                continue
            allowed = _either(caller, action, instead, kind, name)
            granted.append(Requirement(allowed, kind, name))
            if kind in made:
                makes.append(Requirement(Action.CREATE, kind, name))
        return Permission(tuple(granted), tuple(makes), path.is_whole, path.changes)

    def require_to_make(self, standing: Standing, kind: Kind, name: str) -> None:
        """Raise `NotPermitted` when naming it makes it, and the caller may not make it."""
        by_use = self._made_by_use  # may change at any time
        is_made = by_use.topics if kind is _TOPIC else by_use.groups
        if is_made and not self._is_there(kind, name):
            standing.require(Action.CREATE, kind, name)
            standing.makes = True


def _either(
    caller: Caller, action: Action, instead: Action | None, kind: Kind, name: str
) -> Action:
    """Which of both the caller may; raises `NotPermitted` for neither."""
    for each in (instead, action):
        if each is not None and caller.may(each, kind, name):
            return each
    raise not_permitted(caller, action, target_of(kind, name), instead)
