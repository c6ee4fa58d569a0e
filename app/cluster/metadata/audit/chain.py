"""Entries of the audit and the chain that they are in. Pure.

The link of an entry is a MAC over the link before and all that the entry says, with a key that is
not in the database (`secret_key_file`). Whoever changes, takes out or puts in an entry, without the
key, breaks the chain from there on; to whoever has kept an older head, a cut at the end shows, too.
Without a key the link is a hash, which whoever can write the database can make anew.
"""

import hashlib
import hmac
import json
from typing import Final, NamedTuple

FIRST_LINK: Final = bytes(32)
"""Before the first entry of a chain."""
KEPT_FROM: Final = "audit"
"""The resource of the entry that says which entries of its chain were deleted by time."""


class AuditEntry(NamedTuple):
    """Who did what, from where, and what came of it."""

    node: str
    """Whose chain it is in."""
    seq: int
    """1, 2, … in the chain."""
    at_ms: int
    principal: str | None
    address: str | None
    request_id: str | None
    client_request_id: str | None
    action: str
    resource: str
    outcome: str
    """`done` in the transaction of a change; `intended`, `failed: CODE`; `denied: CODE`."""
    before: str | None
    """JSON."""
    after: str | None
    key_id: str | None
    """The fingerprint of the key of its link; None: there was none."""


class Linked(NamedTuple):
    """An entry with its place in the chain."""

    entry: AuditEntry
    previous: bytes
    link: bytes


class Finding(NamedTuple):
    """Where a chain does not hold."""

    node: str
    seq: int
    what: str


def link_of(entry: AuditEntry, previous: bytes, key: bytes | None) -> bytes:
    """32 bytes over the link before and the entry."""
    said = json.dumps(list(entry), ensure_ascii=True, separators=(",", ":")).encode("ascii")
    if key is None:
        return hashlib.sha256(previous + said).digest()
    return hmac.digest(key, previous + said, "sha256")


class ChainCheck:
    """Looks at the entries of one chain in their order."""

    def __init__(self, key: bytes | None, key_id: str | None) -> None:
        self._key = key
        self._key_id = key_id
        self._expected_seq = 0
        self._expected_link = b""
        self._first: AuditEntry | None = None
        self._kept_from = 1
        self._told_of: set[str | None] = set()
        self._found: list[Finding] = []

    def look(self, linked: Linked) -> None:
        """At the next entry."""
        entry, previous, link = linked
        if self._first is None:
            self._first = entry
            self._expected_seq, self._expected_link = entry.seq, previous
        if entry.seq != self._expected_seq:
            missing = f"entries {self._expected_seq} to {entry.seq - 1} are missing"
            self._found.append(Finding(entry.node, self._expected_seq, missing))
        elif previous != self._expected_link:
            self._say(entry, "it does not follow the entry before")
        self._look_at_link(linked)
        self._expected_seq, self._expected_link = entry.seq + 1, link
        if entry.resource == KEPT_FROM and entry.after is not None:
            self._kept_from = max(self._kept_from, int(json.loads(entry.after)["kept_from"]))

    def _look_at_link(self, linked: Linked) -> None:
        entry, previous, link = linked
        if entry.key_id not in {None, self._key_id}:
            self._say_once(entry, f"not checked: it is signed with another key ({entry.key_id})")
        elif link_of(entry, previous, self._key if entry.key_id else None) != link:
            self._say(entry, "it was changed")
        elif entry.key_id is None and self._key is not None:
            self._say_once(
                entry, "not signed: whoever can write the database could have made it anew"
            )

    def findings(self) -> list[Finding]:
        """What does not hold; nothing: all does. Entries that were signed with another key, or
        with none, are told of once."""
        first = self._first
        if first is None or first.seq == self._kept_from:
            return self._found
        what = f"entries before it are missing; those from {self._kept_from} on should be there"
        return [Finding(first.node, first.seq, what), *self._found]

    def _say(self, entry: AuditEntry, what: str) -> None:
        self._found.append(Finding(entry.node, entry.seq, what))

    def _say_once(self, entry: AuditEntry, what: str) -> None:
        if entry.key_id not in self._told_of:
            self._told_of.add(entry.key_id)
            self._say(entry, what)
