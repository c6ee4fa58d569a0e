"""Topics and groups from their making to their deletion: one step at a time for each name.

A deletion is in SQL first, with a tombstone in the same transaction; then the store is told, which
makes the messages unreadable and writes that down; then the tombstone goes. Whatever is cut off in
between is carried out by the next start, or by whoever makes the name again before it. The making
of a successor waits for the deletion of its predecessor.

What the store knows a name by and was never deleted is kept: a database that lacks the name, or
names another generation, is an older copy or a new one. Then the name is made again with the
generation that the store knows. A group lives in the store as its dead-letter topic. Event loop
only.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from app.broker.context import Context
from app.broker.journal.append_future import AppendFuture
from app.broker.lifecycle.name_room import NameRoom
from app.broker.ports import Group, Topic
from app.domain.changes.conditions import Changed, Terms
from app.domain.changes.merging import Named
from app.domain.errors import CurlewError, DiskFull, TopicNotFound
from app.domain.identity import Deletion, Kind, new_generation
from app.domain.names import check_group, check_new_topic, check_topic, dead_letter_topic

_LOG: Final = logging.getLogger(__name__)
_SHOWN: Final = 20
"""Names that one line of the log lists."""
_BEGUN_A_TURN: Final = 256
_FORGOTTEN_MAX: Final = 65_536
"""Deletions that are remembered as carried out in memory; a tombstone seldom outlives a second."""

_Deleted = TypeVar("_Deleted", Topic, Group)


@dataclass(slots=True)
class _Line:
    """Those who make or delete one name."""

    lock: asyncio.Lock
    length: int = 0


class Lifecycle:
    """One per broker. `start` before anything that knows topics or groups is read back."""

    def __init__(
        self, context: Context, room: NameRoom, forget: Callable[[Deletion], None]
    ) -> None:
        """`forget` is called in the turn in which a topic or group ends in the store."""
        self._room = room
        self._forget = forget
        self._store = context.store
        self._metadata = context.metadata
        self._is_started = False
        self._is_open = False
        """What is deleted is forgotten at once; before, when all has been read back."""
        self._to_forget: list[Deletion] = []
        self.is_behind = False
        """A tombstone stayed: what it says is to be carried out again."""
        self._forgotten: dict[Deletion, None] = {}
        """Deletions that have ended what was here, the newest last."""
        self._lines: dict[tuple[Kind, str], _Line] = {}
        self._deleting: set[asyncio.Task[Any]] = set()

    # --- making

    async def change_topic(self, name: str, named: Named, terms: Terms) -> Changed[Topic]:
        """Make a topic, or merge what is named into it. Raises as `Metadata.change_topic`, and
        `StateConflict` when the store has no room for the name or its queues."""
        check_topic(name)
        async with self._turn_of(Kind.TOPIC, name):
            is_there = name in self._metadata.snapshot.topics
            if not terms.must_exist and not is_there:
                check_new_topic(name)
            if not terms.must_exist or is_there:
                self._room.check_topic(name, named)
            terms = await self._with_generation(Kind.TOPIC, name, terms)
            changed = await self._metadata.change_topic(name, named, terms)
            if not terms.is_dry_run:
                await self._begin(Kind.TOPIC, name, changed.after.generation)
            return changed

    async def ensure_topic(self, name: str) -> Topic:
        """The topic; made with the defaults when there is none."""
        check_topic(name)
        async with self._turn_of(Kind.TOPIC, name):
            if name not in self._metadata.snapshot.topics:
                check_new_topic(name)
            self._room.check_topic(name, {})
            generation = await self._generation_to_take(Kind.TOPIC, name)
            topic = await self._metadata.ensure_topic(name, generation=generation)
            await self._begin(Kind.TOPIC, name, topic.generation)
            return topic

    async def change_group(self, name: str, named: Named, terms: Terms) -> Changed[Group]:
        """Make a group, or merge what is named into it. Raises as `Metadata.change_group`, and
        `StateConflict` when the store has no room for the name."""
        check_group(name)
        async with self._turn_of(Kind.GROUP, name):
            if not terms.must_exist:
                self._room.check_group(name)
            terms = await self._with_generation(Kind.GROUP, name, terms)
            changed = await self._metadata.change_group(name, named, terms)
            if not terms.is_dry_run:
                await self._begin(Kind.GROUP, name, changed.after.generation)
            return changed

    async def ensure_group(self, name: str) -> Group:
        """The group; made with the defaults when there is none."""
        check_group(name)
        async with self._turn_of(Kind.GROUP, name):
            self._room.check_group(name)
            generation = await self._generation_to_take(Kind.GROUP, name)
            group = await self._metadata.ensure_group(name, generation=generation)
            await self._begin(Kind.GROUP, name, group.generation)
            return group

    async def _with_generation(self, kind: Kind, name: str, terms: Terms) -> Terms:
        if terms.is_dry_run:
            return terms
        return replace(terms, generation=await self._generation_to_take(kind, name))

    async def _generation_to_take(self, kind: Kind, name: str) -> int:
        """What the store knows by a name that the metadata lacks, if that was not deleted."""
        snapshot = self._metadata.snapshot
        if name in (snapshot.topics if kind is Kind.TOPIC else snapshot.groups):
            return 0
        if self._store.generation(_stored(kind, name)):
            await self._carry_out_all(kind, name)
        return self._store.generation(_stored(kind, name))

    async def _begin(self, kind: Kind, name: str, generation: int) -> None:
        """So that the store knows it also when nothing is sent to it.

        The store may still know its predecessor: the answer to that one's deletion was lost, so it
        was in the snapshot up to now.
        """
        stored = _stored(kind, name)
        try:
            if self._store.generation(stored) not in (0, generation):
                await self._carry_out_all(kind, name)
            self._store.begin_topic(stored, generation)
        except CurlewError as error:  # the first send tries again
            _LOG.debug("%s has not begun: %s", stored, error.detail)

    # --- deleting

    async def delete_topic(self, name: str, terms: Terms) -> Topic:
        """Delete a topic and its messages, for ever, or raise `TopicNotFound`."""
        return await self._finish(
            self._delete(Kind.TOPIC, name, self._metadata.delete_topic, terms)
        )

    async def delete_group(self, name: str, terms: Terms) -> Group:
        """Delete a group with its offsets, leases and dead letters, or raise `GroupNotFound`."""
        return await self._finish(
            self._delete(Kind.GROUP, name, self._metadata.delete_group, terms)
        )

    async def _finish(self, deleting: Coroutine[None, None, _Deleted]) -> _Deleted:
        """Also when whoever asked is gone before it is done."""
        task = asyncio.ensure_future(deleting)
        self._deleting.add(task)
        task.add_done_callback(self._deleting.discard)
        return await asyncio.shield(task)

    async def _delete(
        self,
        kind: Kind,
        name: str,
        delete: Callable[[str, Terms], Awaitable[_Deleted]],
        terms: Terms,
    ) -> _Deleted:
        async with self._turn_of(kind, name):
            deleted = await delete(name, terms)
            if not terms.is_dry_run:
                await self._carry_out(Deletion(kind, name, deleted.generation))
            return deleted

    async def _carry_out(self, deletion: Deletion) -> None:
        """In the store, then in memory, then the tombstone goes."""
        kind, name, generation = deletion
        stored = _stored(kind, name)
        written = AppendFuture()
        try:
            is_new = self._store.delete_topic(stored, generation, written.done)
        except DiskFull as error:
            is_new = True
            written.done(error)
        finally:
            self._forget_once(deletion)
        if is_new:
            try:
                await written.wait()
            except DiskFull:
                self.is_behind = True
                return  # each checkpoint tries again, and the tombstone stays until then
        try:
            await self._metadata.carried_out(deletion)
        except CurlewError as error:
            self.is_behind = True
            _LOG.info("the tombstone of %s %s stays: %s", kind.value, name, error.detail)

    def hear_of(self, deletions: Iterable[Deletion]) -> None:
        """End what was deleted through other nodes, before anybody sees a successor here: its
        messages and groups would be taken for the successor's. `carry_out_deletions` waits until
        that is written, and lets the tombstones go."""
        for deletion in deletions:
            stored = _stored(deletion.kind, deletion.name)
            if deletion not in self._forgotten:
                with suppress(CurlewError):  # nobody reads it all the same
                    self._store.delete_topic(stored, deletion.generation)
                self._forget_once(deletion)

    def _forget_once(self, deletion: Deletion) -> None:
        """What has the name by the second time is a successor."""
        if deletion in self._forgotten:
            return
        self._forgotten[deletion] = None
        if len(self._forgotten) > _FORGOTTEN_MAX:
            del self._forgotten[next(iter(self._forgotten))]
        if self._is_open:
            self._forget(deletion)
        else:
            self._to_forget.append(deletion)

    async def carry_out_deletions(self) -> None:
        """Carry out what was deleted and not finished, here or through another connection.

        The first that stays ends it, but for the start: there is no room, or no database.
        """
        self.is_behind = False
        for deletion in await self._metadata.deletions():
            if self.is_behind and self._is_started:
                return
            async with self._turn_of(deletion.kind, deletion.name):
                await self._carry_out(deletion)

    async def _carry_out_all(self, kind: Kind, name: str) -> None:
        """Those of one name, in whose turn this is."""
        for deletion in await self._metadata.deletions():
            if (deletion.kind, deletion.name) == (kind, name):
                await self._carry_out(deletion)

    # --- starting

    async def start(self) -> None:
        """Finish deletions, and bring metadata and store together. Raises `MetadataUnavailable`.

        What other nodes delete meanwhile ends in the store when it is heard of, so that what is
        read back behind it finds none of it, or is forgotten by `open`. Where other replicas have
        to confirm that, it is not waited for, and `carry_out_deletions` finishes it later."""
        if self._store.has_gate:
            self.hear_of(await self._metadata.deletions())
        else:
            await self.carry_out_deletions()
        await self._metadata.refresh()  # behind it: a name in it has no older deletion to come
        snapshot = self._metadata.snapshot
        names = [(Kind.TOPIC, name) for name in snapshot.topics]
        names += [(Kind.GROUP, name) for name in snapshot.groups]
        for number, (kind, name) in enumerate(names):
            await self._reconcile(kind, name)
            if number % _BEGUN_A_TURN == 0:
                await asyncio.sleep(0)
        self._is_started = True
        self._to_forget.clear()
        snapshot = self._metadata.snapshot
        stored = [*snapshot.topics, *(dead_letter_topic(name) for name in snapshot.groups)]
        hidden = self._store.hidden_topics(stored)
        if hidden:
            _LOG.warning(
                "%d topics of the store are not in the metadata database and were not deleted:"
                " %s%s; they are kept and nobody sees them. Restore the database that belongs to"
                " this store, or make them again with PUT (and delete them if not wanted)",
                len(hidden),
                ", ".join(hidden[:_SHOWN]),
                ", …" if len(hidden) > _SHOWN else "",
            )

    def open(self) -> None:
        """All has been read back, of which nothing was served: forget what was deleted meanwhile.
        From now on it is forgotten at once."""
        self._is_open = True
        for deletion in self._to_forget:
            self._forget(deletion)
        self._to_forget.clear()

    async def _reconcile(self, kind: Kind, name: str) -> None:
        """Have metadata and store know a name by one generation. It is judged again where other
        nodes have deleted the name meanwhile or made it again."""
        stored = _stored(kind, name)
        while generation := self._generation_of(kind, name):
            lives = self._store.generation(stored)
            if lives == generation:
                return
            if not lives:
                try:
                    self._store.begin_topic(stored, generation)
                except TopicNotFound:
                    lives = new_generation()
                except CurlewError:
                    return  # no room: the first send tries again
                else:
                    return
            is_gone = self._store.is_gone(stored, lives)
            if await self._metadata.set_generation(kind, name, lives, generation):
                _LOG.warning(
                    "the metadata database is older than the store, or another one: it named"
                    " generation %d of %s %s, and the store has %s; the store's messages count",
                    *(generation, kind.value, name),
                    "deleted that" if is_gone else f"generation {lives}",
                )
                await self._begin(kind, name, lives)
                return

    def _generation_of(self, kind: Kind, name: str) -> int:
        """As the metadata has it; 0: it lacks the name."""
        snapshot = self._metadata.snapshot
        named = snapshot.topics if kind is Kind.TOPIC else snapshot.groups
        found = named.get(name)
        return 0 if found is None else found.generation

    # --- turns

    @asynccontextmanager
    async def _turn_of(self, kind: Kind, name: str) -> AsyncIterator[None]:
        line = self._lines.setdefault((kind, name), _Line(asyncio.Lock()))
        line.length += 1
        try:
            async with line.lock:
                yield
        finally:
            line.length -= 1
            if not line.length:
                del self._lines[kind, name]


def _stored(kind: Kind, name: str) -> str:
    """The topic of the store whose generation is that of the name."""
    return name if kind is Kind.TOPIC else dead_letter_topic(name)
