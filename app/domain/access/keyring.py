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
