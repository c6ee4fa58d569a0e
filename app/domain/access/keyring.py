"""What a node knows at a moment of who may do what, and whether it asks at all. Pure.

Replaced as a whole, never changed, but for the decisions that are remembered while it lasts. A key
is found by its digest, so that a wrong one costs one look-up and is not remembered. Secrets have
256 random bits: comparing digests in constant time would protect nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from types import MappingProxyType
from typing import NamedTuple

from app.domain.access.evaluator import Evaluator, Principal
from app.domain.access.refusals import PolicyTooOld
from app.domain.limits import POLICY_FRESH_S
from app.domain.positions import TimestampMs


class KnownKey(NamedTuple):
    """Whose key it is, and until when it is one."""

    principal: str
    key_id: str
    expires_ms: TimestampMs | None
    """None: never."""


@dataclass(frozen=True, slots=True)
class Keyring:
    """Keys by their digest, principals and policies, all of the same `version`."""

    is_closed: bool = False
    """Only who shows a key is served."""
    keys: Mapping[bytes, KnownKey] = field(default_factory=lambda: MappingProxyType({}))
    version: int = 0
    principals: Mapping[str, Principal] = field(default_factory=lambda: MappingProxyType({}))
    evaluator: Evaluator = field(default_factory=Evaluator)

    def find(self, key: bytes, now_ms: Callable[[], TimestampMs]) -> KnownKey | None:
        """The key with this text; None when there is none, or when it has expired.

        `now_ms` is asked only for a key that expires.
        """
        found = self.keys.get(sha256(key).digest())
        if found is None or found.expires_ms is None or found.expires_ms > now_ms():
            return found
        return None


class PolicyAge:
    """How long ago what a node knows of keys and policies was the database's.

    Without the database a node goes on with what it knows. After `POLICY_FRESH_S` nothing is
    changed any more, and after `max_s`, where one is set, nobody is served: a key may have been
    revoked since. Both are plain attributes, since each request reads them; a service calls `look`.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        """`now_s` is a clock that does not go back."""
        self._now_s = now_s
        self._seen_s = now_s()
        self.max_s = 0
        """Seconds after which nobody is served; 0: as long as it takes."""
        self.is_stale = False
        """Nothing is to be changed."""
        self.is_over = False
        """Nobody is to be served."""

    @property
    def seconds(self) -> float:
        """The age."""
        return max(self._now_s() - self._seen_s, 0.0)

    def renew(self) -> None:
        """The database has just been asked."""
        self._seen_s = self._now_s()
        self.is_stale = self.is_over = False

    def look(self, *, is_closed: bool) -> bool:
        """Take note of the time; whether nobody is to be served from now on. A node that is not
        closed asks for nothing that could be too old."""
        was_over, age_s = self.is_over, self.seconds
        self.is_stale = is_closed and age_s > POLICY_FRESH_S
        self.is_over = is_closed and 0 < self.max_s < age_s
        return self.is_over and not was_over

    def refusal(self) -> PolicyTooOld:
        """Of a request that nobody can decide on."""
        return PolicyTooOld(
            f"the metadata database has not told of keys and policies for {self.seconds:.0f} s",
            hint="ask another node, or again when the database answers; policy_age_max is how long "
            "a node goes on without it",
        )

    def refusal_of_change(self) -> PolicyTooOld:
        """Of a change, meanwhile."""
        return PolicyTooOld(
            f"the metadata database has not told of keys and policies for {self.seconds:.0f} s: "
            "nothing is changed meanwhile",
            hint="sending and receiving go on; try again when the database answers",
        )
