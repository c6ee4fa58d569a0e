"""The incarnation of a data directory: the same number as long as it can prove that it kept all.

The in-sync set names nodes with their incarnation. A directory that may have lost what it said it
had is another member from then on, out of each set by construction: it was empty, the machine
started anew without a clean stop, a sync failed, damage was cut, or its log is shorter than it was.

Three steps, each on the medium before the next: `begin_opening` before the store is opened, because
an opening wipes out the traces; `end_opening` when it is known what the opening found; `note_stop`
when a clean stop has synced all. An opening that was interrupted between the first two proves
nothing.

One that lacked something (`app.domain.shortages`) was not interrupted: nothing is wiped out before
it is noted (`note_doubt`), and what was not noted is found again. `give_up_opening` takes its mark
back.
"""

import logging
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from app.domain.shortages import shortage_of
from app.store import paths
from app.store.formats.files.replica_files import KeptIncarnation, Standing
from app.store.fs.files import FileSystem
from app.store.lifecycle.recovery import Recovery
from app.store.replica.replica_files import ReplicaFiles

_LOG: Final = logging.getLogger(__name__)


class Incarnation:
    """Of one store, from before its opening to its stop. Blocks; raises as `ReplicaFiles`."""

    def __init__(
        self, files: FileSystem, replica_files: ReplicaFiles, new_number: Callable[[], int]
    ) -> None:
        self._files = files
        self._replica_files = replica_files
        self._new_number = new_number
        self._kept = KeptIncarnation(0, Standing.STOPPED, "", 0)
        self._tried = self._kept
        """What was written last, or may have been: a write may fail behind its renaming."""
        self._given_up: KeptIncarnation | None = None
        """The mark of this process's last opening, where that could not be taken back."""
        self._is_doubted = False
        """Whether this opening has a new number for what it cuts."""
        self._foreseen: int | None = None
        self._unused: int | None = None
        """A new number of openings that were given up: nothing was said under it, so it does for
        what the next try finds. A join may have named it."""
        self._was_given_up = False
        self._distrusted: str | None = None

    @property
    def number(self) -> int:
        """Valid behind `end_opening`."""
        return self._kept.incarnation

    def distrust(self, reason: str) -> None:
        """The next opening has a new number, whatever the files prove: they may be old ones."""
        self._distrusted = reason

    def foresee(self) -> int:
        """The number that the next opening has, if it finds nothing. For who has to be told before
        there is a store."""
        if self._foreseen is None:
            kept = self._replica_files.incarnation()
            if kept is not None and self._doubt_of(kept) is None:
                return kept.incarnation
            kept_one = self._unused if self._was_given_up else None
            self._foreseen = self._new_number() if kept_one is None else kept_one
        return self._foreseen

    def begin_opening(self) -> str | None:
        """Judge what lies there before the store is opened; why there is a new number, or None."""
        if not self._was_given_up:
            self._unused = None
        self._was_given_up = False
        kept, boot_id = self._replica_files.incarnation(), self._files.boot_id()
        reason = self._doubt_of(kept)
        number = self._number(kept, reason)
        self._given_up, self._is_doubted = None, False
        end, damaged = (0, 0) if kept is None else (kept.end, kept.damaged_bytes)
        self._keep(KeptIncarnation(number, Standing.OPENING, boot_id, end, damaged))
        self._foreseen = self._distrusted = None
        return reason

    def _doubt_of(self, kept: KeptIncarnation | None) -> str | None:
        """What of the files says that they prove nothing, before an opening."""
        boot_id = self._files.boot_id()
        if kept is None:
            return "it has none, or one that is damaged"
        if self._distrusted is not None:
            return self._distrusted
        if kept.standing is Standing.OPENING and kept != self._given_up:
            return "an opening was interrupted"
        if kept.standing is Standing.OPEN and (kept.boot_id != boot_id or not boot_id):
            return "the machine started anew, and the node had not stopped in order"
        return "a sync failed" if self._files.exists(paths.SYNC_FAILED) else None

    def end_opening(self, recovery: Recovery) -> str | None:
        """Judge what the opening found; why there is a new number, or None."""
        kept, reason = self._kept, None
        damaged = sum(found.end - found.start for found in recovery.damages)
        if damaged > kept.damaged_bytes:
            reason = f"{damaged} bytes of the log hold no good record"
        elif recovery.cut_because is not None:
            reason = f"the end of the log was cut: {recovery.cut_because}"
        elif recovery.end < kept.end:
            reason = f"the log ends at {recovery.end}, and it was at {kept.end}"
        number = kept.incarnation if self._is_doubted else self._number(kept, reason)
        damaged = max(damaged, kept.damaged_bytes)
        boot_id = self._files.boot_id()
        self._keep(KeptIncarnation(number, Standing.OPEN, boot_id, recovery.end, damaged))
        return reason

    def note_doubt(self, because: str) -> None:
        """What may have been acknowledged is about to be cut, within an opening."""
        number = self._number(None, f"the end of the log is cut: {because}")
        self._keep(replace(self._kept, incarnation=number))
        self._is_doubted = True

    def give_up_opening(self) -> None:
        """The opening has lacked something: the next one judges anew. Raises no shortage.

        Without room or a descriptor the mark stays, and this process knows it for its own.
        """
        self._was_given_up = True
        marks = [each for each in (self._tried, self._kept) if each.standing is Standing.OPENING]
        if not marks:
            return
        self._given_up = marks[0]
        try:
            self._keep(replace(self._tried, standing=Standing.OPEN))
        except OSError as error:
            if shortage_of(error) is None:
                raise

    def renew(self, reason: str, *, keeps_log: bool = True) -> None:
        """What this directory has acknowledged is given up: it is another one from now on. Between
        two openings."""
        self._unused = None  # this opening may have said something under it
        number = self._number(None, reason)
        damaged = self._kept.damaged_bytes if keeps_log else 0
        self._keep(replace(self._kept, incarnation=number, end=0, damaged_bytes=damaged))

    def note_cut(self, end: int) -> None:
        """The log is about to be cut at `end`, as it has to be."""
        if end < self._kept.end:
            self._keep(replace(self._kept, end=end))

    def note_mended(self, damaged_bytes: int) -> None:
        """What was damaged is put right but for so many bytes: more is new damage from now on."""
        if damaged_bytes != self._kept.damaged_bytes:
            self._keep(replace(self._kept, damaged_bytes=damaged_bytes))

    def note_stop(self, end: int) -> None:
        """The log is on the medium up to `end`, and so are promise and history."""
        self._keep(replace(self._kept, standing=Standing.STOPPED, end=end))

    def _number(self, kept: KeptIncarnation | None, reason: str | None) -> int:
        if kept is not None and reason is None:
            return kept.incarnation
        if self._unused is None:
            self._unused = self._new_number() if self._foreseen is None else self._foreseen
        self._foreseen = None
        _LOG.warning("the data directory has a new incarnation, %d: %s", self._unused, reason)
        return self._unused

    def _keep(self, kept: KeptIncarnation) -> None:
        self._tried = kept
        self._replica_files.keep_incarnation(kept)
        self._kept = kept
