"""The idempotency keys of producers: what was stored under each, and for how long. Pure.

Part of `DedupTable`, which keeps the journal. Bounds: `idempotency_keys_max` keys, each for
`idempotency_window_ms` after its request. Event loop only.
"""

from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any, Final

from app.broker.dedup.dedup_entries import Fresh, decode, encode, placed_of
from app.broker.dedup.dedup_refusals import full, in_progress, reused
from app.broker.dedup.tokens import KeyToken, Placed
from app.domain.limits import KIB, STORE_TIME_LEAD_MS_MAX, Limits

_EXPIRED_AT_ONCE: Final = 1_000
"""Keys that one call looks at to forget them."""

_BYTES_AT_ONCE: Final = 64 * KIB

_TAKEN_MS_AT: Final = 4
"""Field of a key's entry: when it was taken."""


class KeyTable:
    """Digest of topic and key → the entry as it was written, oldest first."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._entries: dict[bytes, bytes] = {}
        self._unsafe: set[bytes] = set()
        """Keys whose entries are being written."""

    def __len__(self) -> int:
        return len(self._entries)

    def look(self, claim: KeyToken, topic: str, count: int, now_ms: int) -> Fresh | Placed:
        """As `DedupTable.look`, for a request with a key."""
        self._expire(now_ms)
        digest = _digest_of(topic, claim.owned_key)
        entry = self._entries.get(digest)
        if entry is not None and self._kept(digest, entry, now_ms) is None:
            del self._entries[digest]
            entry = None
        if entry is None:
            if len(self._entries) >= self._limits.idempotency_keys_max:
                raise full("idempotency keys", self._limits.idempotency_keys_max)
            return Fresh()
        _, _, _, fingerprint, _, placed = decode(entry)
        if fingerprint != claim.fingerprint:
            raise reused(claim.key)
        if digest in self._unsafe:
            raise in_progress()
        found = placed_of(placed)
        if found.size < count:
            return Fresh(found.size, found.queues[0])
        return found

    def take(self, topic: str, key: str, size: int, entry: bytes) -> Callable[[bool], None]:
        """Keep the entry of a request of `size` messages; the rest as `DedupTable.taken`."""
        digest = _digest_of(topic, key)
        before = self._entries.pop(digest, None)  # what a crash has left of the same request
        if not size:  # a crash has left nothing of it
            return lambda _: None
        self._entries[digest] = entry
        self._unsafe.add(digest)

        def settle(is_safe: bool) -> None:
            self._unsafe.discard(digest)
            if is_safe or self._entries.get(digest) is not entry:
                return
            if before is None:
                del self._entries[digest]
            else:
                self._entries[digest] = before

        return settle

    def clear(self) -> None:
        """Forget all."""
        self._entries.clear()
        self._unsafe.clear()

    def dump(self) -> Iterator[bytes]:
        """The entries, for a snapshot."""
        yield from list(self._entries.values())

    def _expire(self, now_ms: int) -> None:
        looked_at = 0
        for _ in range(_EXPIRED_AT_ONCE):
            if not self._entries or looked_at > _BYTES_AT_ONCE:
                break
            digest, entry = next(iter(self._entries.items()))
            known = self._kept(digest, entry, now_ms)
            if known is entry:
                break
            looked_at += len(entry)
            del self._entries[digest]
            if known is not None:
                self._entries[digest] = known

    def _kept(self, digest: bytes, entry: bytes, now_ms: int) -> bytes | None:
        """The entry as it is kept: itself, or as if it was taken now when it is ahead of the clock,
        which was set back; None: its window is over."""
        if digest in self._unsafe:
            return entry
        fields: list[Any] = decode(entry)
        if fields[_TAKEN_MS_AT] > now_ms + STORE_TIME_LEAD_MS_MAX:
            fields[_TAKEN_MS_AT] = now_ms
            return encode(*fields)
        oldest_ms = now_ms - self._limits.idempotency_window_ms
        return entry if fields[_TAKEN_MS_AT] >= oldest_ms else None


def _digest_of(topic: str, key: str) -> bytes:
    """What an idempotency key of a topic is kept under; 16 bytes."""
    return blake2b(f"{topic}\n{key}".encode(), digest_size=16).digest()
