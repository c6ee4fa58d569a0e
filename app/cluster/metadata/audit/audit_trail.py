"""What is remembered of who did what. Reachable as `Metadata.audit`.

A change of the metadata is written in its own transaction: neither is there without the other. What
happens in the log writes its intent before and its outcome after; without the database it does not
begin. Denials are only noted: added up by who, action and reason, in at most `DENIALS_MAX` rows of
principals and as many of strangers, that `flush` writes, to a chain of their own, so that nobody
fills the audit by asking for what he may not. What has no room is added up by action and reason
alone, so that its number is known. Event loop only.
"""

import json
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.audit import audit_rows
from app.cluster.metadata.audit.audit_rows import Head, Sought
from app.cluster.metadata.audit.chain import KEPT_FROM, AuditEntry, ChainCheck, Finding
from app.cluster.metadata.database.database import Database
from app.domain.access.actions import Action
from app.domain.access.audit import ACTOR, Actor, Change, Denial, Forced, Shown
from app.domain.clock import Clock
from app.domain.errors import CurlewError
from app.domain.limits import AUDIT_ENTRIES_MAX, AUDIT_TEXT_CHARS_MAX, DENIALS_MAX, FORCED_MAX
from app.runtime.secure.secret_key import SecretKey

_LOG: Final = logging.getLogger(__name__)

COMMANDS: Final = "commands"
"""The chain of those who change the database without a node."""
_DENIALS: Final = "-denials"
"""Behind a node's name: the chain of what it has refused. Apart, since whoever asks for what he may
not makes entries, of which there are so many at most: they must push no change out."""
_PURPOSE: Final = "audit"
_CLIENT_ID_CHARS_MAX: Final = 128
"""What is kept of a request id of a client, also of one that may do nothing."""


_OTHERS: Final = "*"
"""In place of who: all that there was no room for."""
_Denied = tuple[str, str, str]
"""Who, action and reason."""


class AuditPage(NamedTuple):
    """Some entries, and between which places they stand."""

    entries: list[AuditEntry]
    after: tuple[int, str, int] | None
    """Behind which the next page begins; None: there is none."""
    before: tuple[int, str, int] | None
    """Behind which, the other way, the page before begins; None: this is the first."""


class AuditTrail:
    """Writes and reads the audit of a cluster. A `ChangeLog` and an `AuditLog`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._node = COMMANDS
        self._key: bytes | None = None
        self._key_id: str | None = None
        self._denials: dict[_Denied, Denial] = {}
        """The last of each."""
        self._denial_counts = Counter[_Denied]()
        self._told_apart = Counter[bool]()
        """Rows of strangers, and of principals."""
        self._forced: list[Forced] = []
        self.unnamed_count = 0
        """Denials of which it was not noted whose they were, for want of room."""
        self.unwritten_count = 0
        """Forced changes that are not in the audit, for want of room."""

    def write_as(self, node: str | None, key: SecretKey | None) -> None:
        """From now on entries go to the node's chain, signed with the key."""
        self._node = node or COMMANDS
        self._key = None if key is None else key.derive(_PURPOSE)
        self._key_id = None if key is None else key.fingerprint

    # What is written

    async def changed(self, transaction: AsyncConnection, change: Change) -> None:
        """A change, within its transaction."""
        entry = self._entry(
            ACTOR.get(), str(change.action), change.resource, "done", change.before, change.after
        )
        await audit_rows.append(transaction, entry, self._key)

    @asynccontextmanager
    async def around(
        self, action: str, resource: str, said: Shown
    ) -> AsyncIterator[dict[str, object]]:
        """Around what happens in the log. What is put into what it gives stands in the outcome."""
        await self._write(self._entry(ACTOR.get(), action, resource, "intended", None, said))
        outcome: dict[str, object] = {}
        try:
            yield outcome
        except BaseException as error:
            code = error.code if isinstance(error, CurlewError) else type(error).__name__
            await self._write_outcome(action, resource, f"failed: {code}", outcome)
            raise
        await self._write_outcome(action, resource, "done", outcome)

    async def _write_outcome(self, action: str, resource: str, outcome: str, said: Shown) -> None:
        """It has happened: what the database says to it changes nothing any more."""
        try:
            await self._write(self._entry(ACTOR.get(), action, resource, outcome, None, said))
        except CurlewError as error:
            _LOG.error(
                "the outcome of %s %s is not in the audit: %s", action, resource, error.detail
            )

    def denied(self, denial: Denial) -> None:
        """A refusal. Returns at once."""
        self._add(denial, 1)

    def _add(self, denial: Denial, count: int) -> None:
        is_stranger = denial.actor.principal is None
        who = denial.actor.principal or denial.actor.address or ""
        key = who, denial.action, denial.code
        if key not in self._denials:
            if self._told_apart[is_stranger] < DENIALS_MAX:
                self._told_apart[is_stranger] += 1
            else:
                self.unnamed_count += count
                denial = Denial(Actor(), denial.action, "", denial.code)
                key = _OTHERS, denial.action, denial.code
        self._denials[key] = denial
        self._denial_counts[key] += count

    def forced(self, forced: Forced) -> None:
        """What a consumer has ended or replaced. Returns at once."""
        if len(self._forced) < FORCED_MAX:
            self._forced.append(forced)
        else:
            self.unwritten_count += 1

    async def flush(self) -> None:
        """Write what was noted since the last time: each forced change, and of the denials one
        entry for each who, action and reason."""
        await self._write_forced()
        await self._write_denials()

    async def _write_forced(self) -> None:
        forced, self._forced = self._forced, []
        if not forced:
            return
        if len(forced) == FORCED_MAX:
            _LOG.warning(
                "forced changes of consumers come faster than the audit takes them: at most %d are"
                " written each time, and %d were left out since the start",
                *(FORCED_MAX, self.unwritten_count),
            )
        try:
            async with self._database.transaction() as connection:
                for each in forced:
                    entry = self._entry(
                        *(each.actor, str(Action.UPDATE), each.resource, "done"),
                        *(each.before, each.after),
                    )
                    await audit_rows.append(connection, entry, self._key)
        except BaseException:
            kept = [*forced, *self._forced]  # they wait for the next time
            self._forced = kept[:FORCED_MAX]
            self.unwritten_count += len(kept) - len(self._forced)
            raise

    async def _write_denials(self) -> None:
        if not self._denials:
            return
        denials, counts = self._denials, self._denial_counts
        self._denials, self._denial_counts = {}, Counter()
        self._told_apart.clear()
        try:
            async with self._database.transaction() as connection:
                for key, denial in denials.items():
                    said: dict[str, object] = {"count": counts[key]}
                    if key[0] == _OTHERS:
                        said["of"] = "others"
                    outcome = f"denied: {denial.code}"
                    entry = self._entry(
                        denial.actor, denial.action, denial.resource, outcome, None, said
                    )
                    entry = entry._replace(node=self._node + _DENIALS)
                    await audit_rows.append(connection, entry, self._key)
        except BaseException:
            for key, denial in denials.items():  # they wait for the next time
                if key[0] == _OTHERS:
                    self._denials[key] = denial
                    self._denial_counts[key] += counts[key]
                else:
                    self._add(denial, counts[key])
            raise

    async def expire(self, keep_ms: int, entries_max: int = AUDIT_ENTRIES_MAX) -> None:
        """Delete what is older, or more, from all chains, and say so in each: also from that of the
        commands, and from those of nodes that there are no more."""
        before_ms = self._clock.now_ms() - keep_ms
        for node in [head.node for head in await self.heads()]:
            async with self._database.transaction() as connection:
                first = await audit_rows.expire(connection, node, before_ms, entries_max)
                if first is not None:
                    said = {"kept_from": first}
                    entry = self._entry(
                        ACTOR.get(), str(Action.DELETE), KEPT_FROM, "done", None, said
                    )
                    await audit_rows.append(connection, entry._replace(node=node), self._key)

    # What is read

    async def page(
        self,
        sought: Sought,
        after: tuple[int, str, int] | None,
        limit: int,
        *,
        is_backward: bool = False,
    ) -> AuditPage:
        """Entries by time, from behind `after` on; backward: the newest first."""
        async with self._database.reading() as connection:
            found = await audit_rows.find(
                connection, sought, after, limit + 1, is_backward=is_backward
            )
        if not found:
            return AuditPage([], None, after and _beyond(after, is_backward=is_backward))
        shown = found[:limit]
        return AuditPage(
            shown,
            _place(shown[-1]) if len(found) > limit else None,
            None if after is None else _place(shown[0]),
        )

    async def heads(self) -> list[Head]:
        """The head of each chain."""
        async with self._database.reading() as connection:
            return await audit_rows.heads(connection)

    async def verify(self, kept: list[Head]) -> tuple[int, list[Finding]]:
        """How many entries there are, and what does not hold; `kept` are heads from before."""
        count = 0
        findings: list[Finding] = []
        async with self._database.reading() as connection:
            heads = await audit_rows.heads(connection)
            for head in heads:
                check = ChainCheck(self._key, self._key_id)
                links: dict[int, bytes] = {}
                async for part in audit_rows.chain(connection, head.node):
                    for each in part:
                        check.look(each)
                        links[each.entry.seq] = each.link
                count += len(links)
                findings += [*check.findings(), *_compared(links, head, kept)]
            known = {head.node for head in heads}
        findings += [
            Finding(each.node, each.seq, "the whole chain is missing")
            for each in kept
            if each.node not in known
        ]
        return count, findings

    # Entries

    async def _write(self, entry: AuditEntry) -> None:
        async with self._database.transaction() as connection:
            await audit_rows.append(connection, entry, self._key)

    def _entry(
        self,
        actor: Actor,
        action: str,
        resource: str,
        outcome: str,
        before: Shown | None,
        after: Shown | None,
    ) -> AuditEntry:
        theirs = actor.client_request_id
        return AuditEntry(
            node=self._node,
            seq=0,
            at_ms=self._clock.now_ms(),
            principal=actor.principal,
            address=actor.address,
            request_id=actor.request_id,
            client_request_id=theirs and theirs[:_CLIENT_ID_CHARS_MAX],
            action=action,
            resource=resource[:AUDIT_TEXT_CHARS_MAX],
            outcome=outcome,
            before=_text(before),
            after=_text(after),
            key_id=self._key_id,
        )


def _beyond(place: tuple[int, str, int], *, is_backward: bool) -> tuple[int, str, int]:
    """Behind the entry at a place. Nothing is there, and the other way that entry is the first."""
    at_ms, node, seq = place
    return at_ms, node, max(seq - 1, 0) if is_backward else seq + 1


def _place(entry: AuditEntry) -> tuple[int, str, int]:
    return entry.at_ms, entry.node, entry.seq


def _text(shown: Shown | None) -> str | None:
    if shown is None:
        return None
    text = json.dumps(dict(shown), default=str, separators=(",", ":"))
    if len(text) <= AUDIT_TEXT_CHARS_MAX:
        return text
    return json.dumps({"cut": text[: AUDIT_TEXT_CHARS_MAX // 2]})


def _compared(links: dict[int, bytes], head: Head, kept: list[Head]) -> list[Finding]:
    """Whether a chain ends where its head says, and has the heads that somebody kept."""
    found = []
    if head.seq and links.get(head.seq) != head.link:
        found.append(Finding(head.node, head.seq, "the newest entry is missing, or another one"))
    for each in kept:
        if each.node != head.node:
            continue
        if each.seq > head.seq:
            found.append(Finding(each.node, each.seq, "entries are cut off at the end"))
        elif links.get(each.seq, each.link) != each.link:
            found.append(Finding(each.node, each.seq, "it is not the entry whose head was kept"))
    return found
