"""What a reader does about a record that it cannot read: another replica of the shard may have it.

A record is a gap only when all of them have said that they do not have it.

The store knows nobody to ask. Whoever has opened it as a replica puts itself into `others`, before
anybody reads; in a store that has no other replicas nobody is asked. Any thread.
"""

from collections.abc import Iterable
from typing import Protocol

from app.store.fs.files import ColdRead


class OtherReplicas(Protocol):
    """Those that may have what is damaged here."""

    def is_worth_asking(self, physical_offset: int) -> bool:
        """Whether they are there, and did not say a moment ago that they do not have it. Any
        thread; returns at once."""
        ...

    def fetch(self, physical_offset: int) -> bool:
        """Put right what is damaged where a record begins; whether it is worth reading again.
        Reader threads: waits for the others, for some seconds at most."""
        ...

    def refuse_unasked(self, physical_offset: int) -> None:
        """Raise `ShardUnavailable` where one that may have the record has not said anything of it.
        Any thread; returns at once."""
        ...


class ReadRepair:
    """Of one opening of a store."""

    def __init__(self) -> None:
        self.others: OtherReplicas | None = None

    def is_mended(self, physical_offsets: Iterable[int], *, wait_for_disk: bool) -> bool:
        """Whether any record that cannot be read, and begins at one of these, is worth reading
        again. It gives up at the first that is not. Raises `ColdRead` where it would have to wait
        for the others, and may not."""
        others, is_any = self.others, False
        if others is None:
            return False
        for at in physical_offsets:
            if not others.is_worth_asking(at):
                continue
            if not wait_for_disk:
                raise ColdRead
            if not others.fetch(at):
                break
            is_any = True
        return is_any

    def refuse_unasked(self, physical_offset: int) -> None:
        """Raise `ShardUnavailable` where the record that begins there, and cannot be read, may be
        whole elsewhere. Any thread; returns at once."""
        if self.others is not None:
            self.others.refuse_unasked(physical_offset)
