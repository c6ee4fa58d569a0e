"""Who has not been heard of for how long, on this node's own monotonic clock. Pure.

Members and lock holders write a new number into SQL with every sign of life. A node that has seen
the same number for a whole lease knows that the lease is over, without comparing its clock with
anybody's: it saw the number later than its writer wrote it. A node that just started, or that
could not look for a while, gives everybody a whole lease anew: too late is safe, too early is not.
"""

from collections.abc import Mapping
from typing import Generic, TypeVar

Key = TypeVar("Key")
Sign = TypeVar("Sign")


class Liveness(Generic[Key, Sign]):
    """Signs of life by group and key."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[Key, tuple[Sign, float]]] = {}

    @property
    def groups(self) -> list[str]:
        """Groups of which anybody is watched."""
        return list(self._seen)

    def observe(self, group: str, signs: Mapping[Key, Sign], now_s: float) -> None:
        """This is the whole group now: who is new or has a new sign was heard of at `now_s`."""
        before = self._seen.get(group, {})
        after = {}
        for key, sign in signs.items():
            known = before.get(key)
            after[key] = known if known is not None and known[0] == sign else (sign, now_s)
        if after:
            self._seen[group] = after
        else:
            self._seen.pop(group, None)

    def silent(self, group: str, for_s: float, now_s: float) -> dict[Key, Sign]:
        """Those of the group whose last sign is `for_s` seconds old, with that sign."""
        return {
            key: sign
            for key, (sign, since_s) in self._seen.get(group, {}).items()
            if now_s - since_s >= for_s
        }

    def age_s(self, group: str, key: Key, now_s: float) -> float:
        """How long ago the last sign of life was; endless for who is not watched."""
        seen = self._seen.get(group, {}).get(key)
        return float("inf") if seen is None else now_s - seen[1]

    def restart(self, now_s: float) -> None:
        """Nobody could be heard of until now."""
        for group, signs in self._seen.items():
            self._seen[group] = {key: (sign, now_s) for key, (sign, _) in signs.items()}
