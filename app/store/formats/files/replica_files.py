"""The documents of a replica's small files, in the frame of `state_file`. Pure.

What they mean is said in `app.cluster.replication.terms`. A term is an epoch and a grant; a member
is a node and an incarnation.
"""

from enum import StrEnum
from typing import Final

import msgspec

KIND_PROMISE: Final = b"CRLP"
KIND_HISTORY: Final = b"CRLH"
KIND_INCARNATION: Final = b"CRLI"
KIND_BEGINNING: Final = b"CRLB"
KIND_RESET: Final = b"CRLR"


class KeptTerm(msgspec.Struct, frozen=True, array_like=True):
    """One leadership."""

    epoch: int
    grant: int


class KeptMember(msgspec.Struct, frozen=True, array_like=True):
    """One replica of an in-sync set."""

    node: str
    incarnation: int


class KeptPromise(msgspec.Struct, frozen=True):
    """The newest term and the newest in-sync set that the replica has heard of."""

    term: KeptTerm
    in_sync_version: int
    in_sync: tuple[KeptMember, ...]


class KeptTermStart(msgspec.Struct, frozen=True, array_like=True):
    """From the physical offset `start` on the log was made in this term."""

    epoch: int
    grant: int
    start: int


class KeptHistory(msgspec.Struct, frozen=True):
    """The terms of the log's bytes, oldest first."""

    starts: tuple[KeptTermStart, ...]


class KeptBeginning(msgspec.Struct, frozen=True):
    """The log is to begin at `start`, with nothing in it, and all that is there is to go."""

    start: int
    """A physical offset, the base of a segment."""
    starts: tuple[KeptTermStart, ...]
    """The terms of the leader's log below, oldest first."""


class Standing(StrEnum):
    """How far the life of a store that has an incarnation had come when the file was written."""

    OPENING = "opening"
    """It is not known yet what the directory has kept."""
    OPEN = "open"
    STOPPED = "stopped"
    """In order: all was on the medium."""


class KeptIncarnation(msgspec.Struct, frozen=True):
    """The incarnation, and what the next start has to know to keep it."""

    incarnation: int
    standing: Standing
    boot_id: str
    """Of the machine's start in which this was written; empty when unknown."""
    end: int
    """Of the log, as a physical offset; all below was on the medium."""
    damaged_bytes: int = 0
    """The most that an opening has found without good records. They are known; more is news."""


class KeptReset(msgspec.Struct, frozen=True):
    """That the replica begins anew, as an operator has asked."""

    reason: str
    keeps_log: bool
    """Whether the log stays, to be cut where the leader's parts from it."""
