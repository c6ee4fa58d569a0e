"""Whoever a request is of, and what it may do now: asked as often as something is done for it.

A caller is shared by all requests with the same key, and lives as long as one that waits: it looks
at what the node knows at the moment, so that what was revoked meanwhile is not permitted. Event
loop only, pure but for the time.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

from typing_extensions import override

from app.domain.access.accounts import Fence
from app.domain.access.actions import CLUSTER, Action, Kind, Target
from app.domain.access.evaluator import UNMENTIONED, Decision, Principal
from app.domain.access.keyring import Keyring, KnownKey, PolicyAge
from app.domain.access.refusals import NotPermitted, Unauthorized
from app.domain.names import in_audit, split_name, stored_name
from app.domain.positions import TimestampMs


class KeyringSource(Protocol):
    """Where the newest of what is known stands; a plain attribute read."""

    @property
    def keyring(self) -> Keyring: ...
    @property
    def age(self) -> PolicyAge: ...
    @property
    def waiting(self) -> set[Callable[[], object]]: ...


class Caller:
    """Nobody in particular, on a node that asks nobody: everything is permitted.

    Base of those that have a name. What it says of names is of *stored* names, which have their
    namespace in front.
    """

    __slots__ = ()

    name: str | None = None
    """Of the principal; None: nobody was asked."""
    namespace: str = ""
    """The one that it is bound to; empty: none."""
    is_of_token: bool = False
    """Whether its rights stand only in what it showed, and end with it."""
    decided: dict[object, Any] | None = None
    """What was decided for it, remembered by who decides; None: nothing is."""

    @property
    def principal(self) -> Principal | None:
        """As it is now; None when it is none any more, or never was."""
        return None

    @property
    def is_live(self) -> bool:
        """Whether what it showed still counts."""
        return True

    @property
    def left_s(self) -> float | None:
        """Seconds until what it showed counts no more; None: at no time that is known."""
        return None

    @property
    def keyring(self) -> Keyring | None:
        """What its rights are known by now: while this is the same, so are they."""
        return None

    @property
    def age(self) -> PolicyAge | None:
        """How old that is; None: nothing has to be known."""
        return None

    @property
    def waiting(self) -> set[Callable[[], object]] | None:
        """What is called when something has changed in who may do what; None: nothing does."""
        return None

    @property
    def for_later(self) -> "Caller":
        """Whoever it is, for work that goes on when the request is over: there its present rights
        count, not what it showed."""
        return self

    def decide(self, action: Action, target: Target) -> Decision:
        """Whether it may now, and by which policy."""
        del action, target
        return Decision(is_allowed=True, policy=None)

    def may(self, action: Action, kind: Kind, name: str) -> bool:
        """Whether it may now."""
        return self.decide(action, target_of(kind, name)).is_allowed

    def reaches(self, namespace: str) -> bool:
        """Whether it may do anything in the namespace, so that it may know of it."""
        del namespace
        return True

    def may_run(self, action: Action) -> bool:
        """Whether it may do that to the cluster."""
        return self.decide(action, CLUSTER).is_allowed

    def require(self, action: Action, kind: Kind, name: str) -> None:
        """Raise `NotPermitted` unless it may: the same whether or not there is such a thing."""
        target = target_of(kind, name)
        if not self.decide(action, target).is_allowed:
            raise not_permitted(self, action, target)

    def require_all_that_begin(self, action: Action, kind: Kind, name: str) -> None:
        """As `require`, for `name` and every name that begins so."""
        del action, kind, name


class Anybody(Caller):
    """Who came without a name to a node that is open. Ends when the node closes."""

    __slots__ = ("_source",)

    def __init__(self, source: KeyringSource) -> None:
        self._source = source

    @property
    @override
    def is_live(self) -> bool:
        return not self._source.keyring.is_closed

    @property
    @override
    def keyring(self) -> Keyring:
        return self._source.keyring

    @property
    @override
    def waiting(self) -> set[Callable[[], object]]:
        return self._source.waiting

    @override
    def decide(self, action: Action, target: Target) -> Decision:
        del action, target
        return Decision(is_allowed=self.is_live, policy=None)


class Stranger(Caller):
    """Who showed nothing, where that is enough: nothing else is permitted."""

    __slots__ = ()

    @override
    def decide(self, action: Action, target: Target) -> Decision:
        del action, target
        return UNMENTIONED

    @override
    def reaches(self, namespace: str) -> bool:
        return False


class Known(Caller):
    """A principal of which the node knows: what it may is what policies say at the moment."""

    __slots__ = ("_source", "decided", "fence", "name")

    def __init__(self, source: KeyringSource, name: str) -> None:
        self._source = source
        self.name = name
        self.fence: Fence | None = None
        """Where its requests have to come from, for who authenticates them; None: anywhere."""
        self.decided = {}

    @property
    @override
    def age(self) -> PolicyAge:
        return self._source.age

    @property
    @override
    def waiting(self) -> set[Callable[[], object]]:
        return self._source.waiting

    @property
    @override
    def keyring(self) -> Keyring:
        return self._source.keyring

    @property
    @override
    def principal(self) -> Principal | None:
        return self._source.keyring.principals.get(self.name or "")

    @override
    def decide(self, action: Action, target: Target) -> Decision:
        principal = self.principal
        if principal is None:
            return UNMENTIONED
        return self._source.keyring.evaluator.decide(principal, action, target)

    @override
    def reaches(self, namespace: str) -> bool:
        principal = self.principal
        if principal is None:
            return False
        evaluator = self._source.keyring.evaluator
        sees_all = evaluator.decide(principal, Action.GET, CLUSTER).is_allowed
        return sees_all or evaluator.reaches(principal, namespace)

    @override
    def require_all_that_begin(self, action: Action, kind: Kind, name: str) -> None:
        target = target_of(kind, name)
        principal = self.principal
        evaluator = self._source.keyring.evaluator
        if principal is None or not evaluator.covers(principal, action, target):
            raise not_permitted(self, action, target._replace(name=f"{target.name}*"))


class KeyHolder(Known):
    """A principal that showed an API key: it is one while the key is known and not expired.

    Made anew for each keyring, so that a request that begins with it has the newest; one that waits
    asks `is_live`.
    """

    __slots__ = (
        *("_digest", "_key", "_now_ms", "_seen"),
        *("expires_ms", "is_lasting", "key_id", "namespace"),
    )

    def __init__(
        self,
        source: KeyringSource,
        digest: bytes,
        key: KnownKey,
        now_ms: Callable[[], TimestampMs],
    ) -> None:
        super().__init__(source, key.principal)
        self._digest = digest
        self._key = key
        self._now_ms = now_ms
        self._seen = source.keyring
        self.key_id = key.key_id
        self.expires_ms = key.expires_ms
        self.is_lasting = False
        """Whether it counts at any time and from anywhere, while what is known stays the same."""
        principal = source.keyring.principals.get(key.principal)
        self.namespace = "" if principal is None else principal.namespace

    @property
    @override
    def for_later(self) -> Caller:
        return Known(self._source, self._key.principal)

    @property
    @override
    def left_s(self) -> float | None:
        if self.expires_ms is None:
            return None
        return max(self.expires_ms - self._now_ms(), 0) / 1_000

    @property
    @override
    def is_live(self) -> bool:
        keyring = self._source.keyring
        if keyring is not self._seen:
            if keyring.keys.get(self._digest) != self._key:
                return False
            self._seen = keyring
        return self.expires_ms is None or self.expires_ms > self._now_ms()

    @property
    @override
    def principal(self) -> Principal | None:
        return super().principal if self.is_live else None


class Shown(Known):
    """A principal whose roles stand in what it showed, or that a certificate names; it is one until
    that ends. Policies about its name count as well."""

    __slots__ = ("_is_known", "_now_ms", "ends_ms", "is_of_token", "namespace", "roles")

    def __init__(
        self,
        source: KeyringSource,
        name: str,
        roles: tuple[str, ...] | None,
        ends_ms: TimestampMs,
        now_ms: Callable[[], TimestampMs],
        is_known: Callable[[], bool] | None = None,
    ) -> None:
        """Without `roles` it has those of the principal of that name. `is_known`: whether what it
        showed would still be taken, were it shown now; None: as long as it has not ended."""
        super().__init__(source, name)
        self.roles = roles
        self.is_of_token = roles is not None
        self.ends_ms = ends_ms
        self._now_ms = now_ms
        self._is_known = is_known
        principal = None if roles is not None else source.keyring.principals.get(name)
        self.namespace = "" if principal is None else principal.namespace

    @property
    @override
    def for_later(self) -> Caller:
        """Of a token, whose roles stand nowhere else, until it ends."""
        return self if self.is_of_token else Known(self._source, self.name or "")

    @property
    @override
    def left_s(self) -> float:
        return max(self.ends_ms - self._now_ms(), 0) / 1_000

    @property
    @override
    def is_live(self) -> bool:
        if self.ends_ms <= self._now_ms():
            return False
        return self._is_known is None or self._is_known()

    @property
    @override
    def principal(self) -> Principal | None:
        if not self.is_live:
            return None
        if self.roles is None:
            return super().principal
        return Principal(self.name or "", self.roles)


OPEN: Final = Caller()
"""Of a node without keys, and of what the node does by itself."""
STRANGER: Final = Stranger()


def target_of(kind: Kind, name: str) -> Target:
    """What a stored name names; the cluster has none."""
    if kind is Kind.CLUSTER:
        return CLUSTER
    if "%" not in name:
        return Target(kind, name)
    namespace, bare = split_name(name)
    return Target(kind, bare, namespace)


def ended(caller: Caller) -> Unauthorized:
    """The refusal of a caller that was live when its request began."""
    if caller.name is None:
        return Unauthorized("this node began to ask for API keys while the request waited")
    return Unauthorized(
        "this API key, token or certificate was revoked, or has expired, while the request waited"
    )


def not_permitted(
    caller: Caller, action: Action, target: Target, instead: Action | None = None
) -> NotPermitted | Unauthorized:
    """The refusal: the same whether or not there is such a thing. `instead` would do as well."""
    if not caller.is_live:  # it may do nothing any more, whatever policies say of its name
        return ended(caller)
    subject = "this caller" if caller.name is None else f"principal {caller.name!r}"
    refused = f"may not {action}" if instead is None else f"may neither {instead} nor {action}"
    place = f" in namespace {target.namespace!r}" if target.namespace else ""
    refusal = NotPermitted(
        f"{subject} {refused} {target}{place}",
        hint="ask an administrator for a policy that allows it; GET /v1/whoami?action=… explains",
        fields={"action": str(action), "resource": str(target)},
    )
    stored = in_audit(stored_name(target.namespace, target.name))
    refusal.resource = str(target._replace(name=stored))
    return refusal
