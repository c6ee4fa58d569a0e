"""Which members must have a block before it is confirmed, while the row's set changes. Pure.

R4: a growth counts from before it is asked for; a shrink counts when its commit is known *and* the
members that remain have noted it. So the required members are those of every set that the row may
hold, or that a database which forgets may show again.
"""

from collections.abc import Mapping

from app.cluster.replication.terms import Member


class InSyncSet:
    """The set of one leadership."""

    __slots__ = ("_asked", "_unnoted", "in_sync", "version")

    def __init__(self, in_sync: frozenset[Member], version: int) -> None:
        self.in_sync = in_sync
        """As the row is known to have it."""
        self.version = version
        self._asked: frozenset[Member] | None = None
        """What the row may have by now, since a change was asked for."""
        self._unnoted: frozenset[Member] = frozenset()
        """Members that left, of which those that remain have not all noted it."""

    @property
    def required(self) -> frozenset[Member]:
        """The members that must have a block."""
        return self.in_sync | self._unnoted | (self._asked or frozenset())

    @property
    def is_settled(self) -> bool:
        """Whether a further change may be asked for. Not all need to have noted the last one: a
        member that has died never will, and may have to be replaced first."""
        return self._asked is None

    def ask(self, in_sync: frozenset[Member]) -> None:
        """A change of the row is about to be asked for."""
        assert self.is_settled
        self._asked = in_sync

    def seen(self, in_sync: frozenset[Member], version: int) -> None:
        """The row was seen. An older one says nothing: a change may be on its way still."""
        if version > self.version:
            self._unnoted = (self._unnoted | self.in_sync) - in_sync
            self.in_sync, self.version = in_sync, version
            self._asked = None

    def refused(self) -> None:
        """The change was not carried out, and its repetition would not be either."""
        self._asked = None

    def noted(self, versions: Mapping[Member, int]) -> bool:
        """Count a shrink when all that remain keep it in their promise; whether it counts now."""
        if not self._unnoted or self._asked is not None:
            return False
        if any(versions.get(member, -1) < self.version for member in self.in_sync):
            return False
        self._unnoted = frozenset()
        return True
