"""What was permitted for one request, and what has to hold for as long as it goes on. Pure.

Whoever answers a request asks here for all that the request names. What was permitted is kept, so
that it can be asked again after a wait; that something was asked at all is kept, too, so that no
answer goes out that nobody decided on. Event loop only.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from app.domain.access.actions import Action, Kind
from app.domain.access.caller import OPEN, Caller, ended, not_permitted, target_of
from app.domain.access.keyring import Keyring
from app.domain.errors import CurlewError

Visible = Callable[[str], bool]
"""Whether a name may be shown."""


def every(name: str) -> bool:
    """All may be shown."""
    del name
    return True


CHANGING: Final = frozenset({Action.CREATE, Action.UPDATE, Action.DELETE, Action.ADMIN})
"""What waits while the database is away."""


def refuse_stale(caller: Caller) -> None:
    """Raise `PolicyTooOld` when nothing is to be changed by what is known."""
    age = caller.age
    if age is not None and age.is_stale:
        raise age.refusal_of_change()


class Requirement(NamedTuple):
    """An action on a thing of a stored name."""

    action: Action
    kind: Kind
    name: str


class Permission(NamedTuple):
    """What was decided for an operation on the names in a path, by one caller and one keyring."""

    granted: tuple[Requirement, ...]
    makes: tuple[Requirement, ...]
    """What its use makes where it is not there: that needs CREATE as well."""
    is_whole: bool
    """Nothing else has to be asked."""
    changes: bool
    """It waits while the database is away."""


class Standing:
    """Base of a request: its caller, and what it was permitted."""

    __slots__ = ("_seen", "caller", "granted", "is_decided", "makes")

    def __init__(self, caller: Caller = OPEN) -> None:
        self.caller = caller
        self.is_decided = caller.name is None
        """Whether something was asked for it: without, no success may go out."""
        self.granted: tuple[Requirement, ...] = ()
        self.makes = False
        """Whether it names what is not there, and what its use makes."""
        self._seen: Keyring | None = None

    def require(self, action: Action, kind: Kind, name: str) -> None:
        """Raise `NotPermitted` unless the caller may; `PolicyTooOld` for a change by what was known
        long ago."""
        self.is_decided = True
        self.caller.require(action, kind, name)
        if action in CHANGING:
            refuse_stale(self.caller)
        self.granted += (Requirement(action, kind, name),)

    def require_each(self, action: Action, kind: Kind, names: Iterable[str]) -> None:
        """As `require`, for each of the names; each is asked once."""
        self.is_decided = True
        for name in dict.fromkeys(names):
            self.require(action, kind, name)

    def require_family(self, action: Action, kind: Kind, name: str) -> None:
        """As `require`, for the name and all that begin with it and a colon."""
        self.is_decided = True
        self.caller.require(action, kind, name)
        self.caller.require_all_that_begin(action, kind, f"{name}:")

    def may(self, action: Action, kind: Kind, name: str) -> bool:
        """Whether the caller may. Of a list, whose rows are left out else."""
        self.is_decided = True
        return self.caller.may(action, kind, name)

    def may_run(self, action: Action) -> bool:
        """Whether the caller may do that to the cluster."""
        self.is_decided = True
        return self.caller.may_run(action)

    def visible(self, action: Action, kind: Kind, names: Iterable[str]) -> list[str]:
        """Those of the names that the caller may."""
        self.is_decided = True
        may = self.caller.may
        return [name for name in names if may(action, kind, name)]

    def sees_topic(self, name: str) -> bool:
        """Whether the caller may know of the topic."""
        return self.may(Action.GET, Kind.TOPIC, name)

    def sees_group(self, name: str) -> bool:
        """Whether the caller may know of the group."""
        return self.may(Action.GET, Kind.GROUP, name)

    def may_know(self, kind: str, name: str) -> bool:
        """Whether the caller may know of a thing, for hints; that decides on nothing."""
        return self.caller.may(Action.GET, Kind(kind), name)

    def for_anybody(self) -> None:
        """Note that every caller may have this."""
        self.is_decided = True

    def refusal(self) -> CurlewError | None:
        """Why the request cannot go on; None: it can. To be asked after each wait, before anything
        is handed out."""
        caller = self.caller
        if not caller.is_live:
            return ended(caller)
        age = caller.age
        if age is not None and age.is_over:
            return age.refusal()
        keyring = caller.keyring
        if keyring is self._seen:
            return None
        for action, kind, name in self.granted:
            target = target_of(kind, name)
            if not caller.decide(action, target).is_allowed:
                return not_permitted(caller, action, target)
        self._seen = keyring
        return None
