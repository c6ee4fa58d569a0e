"""Lite pull: a program asks for messages itself, and says when it is done with them.

`SharedPulls` reads the queues that a group gives it, over polls; `ChosenPulls` those that the
program names. Both on an event loop, one call at a time.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from time import monotonic
from typing import Any, Final

from curlew_client.aio.sending import AsyncSender
from curlew_client.assigned.options import MemberOptions
from curlew_client.assigned.places import Places
from curlew_client.assigned.queues import OwnedQueue, all_done
from curlew_client.assigned.records import (
    PollAnswer,
    Polled,
    QueueName,
    Settle,
    read_frame,
)
from curlew_client.assigned.replicas import Replicas
from curlew_client.assigned.running import LAST_POLLS, Patience, ask
from curlew_client.assigned.share import Said, Share
from curlew_client.consuming.calls import LOG
from curlew_client.consuming.decisions import Decision
from curlew_client.errors import (
    CurlewError,
    InvalidRequest,
    NotFound,
    OffsetExpired,
    OffsetOutOfRange,
    StaleGeneration,
)
from curlew_client.session import Session
from curlew_client.wire.frames import CONTENT_TYPE as FRAME
from curlew_client.wire.http1 import path_part

AHEAD: Final = 1_000
"""Messages of one poll, however few the program asks for; as RocketMQ's pullThresholdForQueue.
What one poll reads, at most 8 MiB (`POLL_BYTES`), is all that is ever held for later reads."""
FRESH_S: Final = 1.0
"""So long what was read ahead is given without asking the node whose its queue is."""
HEARTBEAT_S: Final = 8.0
"""Without a poll of the program for so long, the member says that it lives."""


class SharedPulls:
    """A member of a group, whose queues change with the other members."""

    def __init__(
        self,
        session: Session,
        sender: AsyncSender,
        options: MemberOptions,
        settle: Settle,
        took: Callable[[list[dict[str, Any]]], None],
    ) -> None:
        """`settle` is what messages call; `took` is given retries that came when nobody read."""
        self._session = session
        self._sender = sender
        self._options = options
        self._settle = settle
        self._took = took
        self._share = Share(options, session.client_id[-127:])
        self._turn = asyncio.Lock()
        self._ahead: deque[list[Polled]] = deque()
        """What was read and given to nobody, each piece of one queue."""
        self._most = AHEAD
        """What is asked for at least; less, where the node gives no more at once."""
        self._heard_s = 0.0
        """When the last poll was answered, by the monotonic clock."""
        self._beat = asyncio.get_running_loop().create_task(self._beat_on())

    @property
    def queues(self) -> Mapping[QueueName, OwnedQueue]:
        """Those that are the member's now."""
        return self._share.queues

    async def read(
        self, count: int, wait_s: float, paused: Collection[QueueName]
    ) -> tuple[list[Polled], list[dict[str, Any]]]:
        """Messages that are there, or come in time, and documents of retries.

        More is read than is asked for, and given to the next reads. Raises what a poll raises,
        also when only the node is asked whether the queues are the member's still.
        """
        async with self._turn:
            retries: list[dict[str, Any]] = []
            if self._ahead and monotonic() >= self._heard_s + FRESH_S:
                await self._poll_beside()
            found = self._given_of(count, paused)
            if not found:
                self._forget_paused()
                more, retries = await self._poll_ahead(count, wait_s, paused)
                self._ahead.extend(more)
                found = self._given_of(count, paused)
            return found, retries

    def _given_of(self, count: int, paused: Collection[QueueName]) -> list[Polled]:
        """What was read ahead and is the member's still."""
        found: list[Polled] = []
        kept: list[list[Polled]] = []
        ahead = self._ahead
        while ahead and len(found) < count:
            some = ahead.popleft()
            queue: OwnedQueue = some[0].owner
            if queue.is_dropped or queue.is_leaving:
                continue
            if queue.name in paused:
                kept.append(some)
                continue
            room = count - len(found)
            if len(some) > room:
                ahead.appendleft(some[room:])
            found += some[:room]
        ahead.extendleft(reversed(kept))
        for message in found:
            message.has_begun = True
        return found

    def _forget_paused(self) -> None:
        """Read again what is left of paused queues, when they are read again: no pause adds up."""
        self._ahead = deque(some for some in self._ahead if not some[0].owner.forget(some))

    async def _poll_ahead(
        self, count: int, wait_s: float, paused: Collection[QueueName]
    ) -> tuple[list[list[Polled]], list[dict[str, Any]]]:
        try:
            return await self._poll(max(count, self._most), wait_s, paused)
        except InvalidRequest as error:  # of which nothing was done
            is_known = error.fields.get("parameter") == "max_messages"
            most = int(error.fields.get("max") or 0) if is_known else 0
            if not count <= most < self._most:
                raise
            self._most = most
        return await self._poll(most, wait_s, paused)

    async def _poll(
        self, count: int, wait_s: float, paused: Collection[QueueName]
    ) -> tuple[list[list[Polled]], list[dict[str, Any]]]:
        """Messages in pieces of one queue, and documents of retries."""
        self._share.paused = set(paused)
        unread = [*self._share.unread(2**62)]
        body, said = self._share.poll(count, wait_s, unread)
        try:
            shown, found = await self._ask(body, said, wait_s)
        except StaleGeneration:
            self._share.lose()
            return [], []
        self._heard_s = monotonic()
        news = self._share.hear(shown, found, said)
        for text in news.warnings:
            LOG.warning("group %s: %s", self._options.group, text)
        for message in news.refused:
            message.owner.again(message)
        refused = [[message] for message in news.refused]
        return [*refused, *(some for _, some in news.messages)], shown["retries"]

    async def _ask(self, body: bytes, said: Said, wait_s: float) -> PollAnswer:
        patience = Patience(wait_s, self._session.timeout_s)
        return await ask(self._sender, self._share, body, said, patience, self._settle)

    def hand_back(self, decision: Decision) -> None:
        """Let the group's retries have a message, with the next poll."""
        self._share.hand_back(decision)

    async def say(self) -> None:
        """Commit and hand back now, as far as shards answer: what one does not take within the
        client's timeout is said with a later poll. Raises what keeps it from that."""
        async with self._turn:
            until_s = monotonic() + self._session.timeout_s
            for _ in range(LAST_POLLS):
                self._share.put_into_effect()
                if not self._share.has_to_say or monotonic() >= until_s:
                    return
                await self._poll_beside()

    async def _poll_beside(self) -> None:
        """Say what there is to say, and read nothing but what comes with a new queue."""
        found, retries = await self._poll(1, 0.0, list(self._share.queues))
        self._ahead.extend(found)
        self._took(retries)

    async def seek(self, queue: QueueName, offset: int) -> None:
        """Read on from there."""
        async with self._turn:
            old = self._share.queues.get(queue)
            if old is None:
                raise ValueError(f"{queue} is not this consumer's; it has {list(self.queues)}")
            fresh = OwnedQueue(queue, old.since_generation, offset)
            old.is_dropped, self._share.queues[queue] = True, fresh

    async def _beat_on(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            if self._share.assignment_id is not None and not self._turn.locked():
                async with self._turn:
                    with suppress(CurlewError):
                        await self._poll_beside()

    async def hush(self) -> None:
        """Give no signs of life any more: with them retries come, of which nobody would hear."""
        async with self._turn:  # none is under way
            self._beat.cancel()
        await asyncio.gather(self._beat, return_exceptions=True)

    async def close(self) -> None:
        """Leave the group."""
        await self.hush()
        if self._share.assignment_id is not None:
            client_id, group = self._share.client_id, self._options.group
            await self._sender.call(
                "DELETE",
                f"/v1/groups/{path_part(group)}/members/{path_part(client_id)}",
                timeout_s=self._session.connect_timeout_s,
            )


class ChosenPulls:
    """Queues that the program has named. Nobody else is kept from them."""

    def __init__(
        self,
        session: Session,
        sender: AsyncSender,
        options: MemberOptions,
        settle: Settle,
        places: Places,
    ) -> None:
        """`settle` is what messages call."""
        self._session = session
        self._sender = sender
        self._options = options
        self._settle = settle
        self._places = places
        self._replicas = Replicas(session, sender)
        self.queues: dict[QueueName, OwnedQueue] = {}
        self._kept: list[Polled] = []
        """What was read, and given to nobody."""

    async def choose(self, queues: Collection[QueueName]) -> None:
        """Read these, each from what the group has committed, else from its start."""
        by_topic: dict[str, dict[int, int]] = {}
        for topic in {queue.topic for queue in queues}:
            found = await self._places.at(topic, self._options.start or "earliest")
            with suppress(NotFound):
                found |= await self._places.committed(self._options.group, topic)
            by_topic[topic] = found
        for queue in queues:
            if queue.queue_id not in by_topic[queue.topic]:
                raise ValueError(f"topic {queue.topic!r} has no queue {queue.queue_id}")
        self.queues = {
            queue: self.queues.get(queue) or OwnedQueue(queue, 0, by_topic[queue.topic][queue[1]])
            for queue in queues
        }

    async def read(
        self, count: int, wait_s: float, paused: Collection[QueueName]
    ) -> tuple[list[Polled], list[dict[str, Any]]]:
        """Messages of the queues that have any; the first that come within `wait_s`.

        Raises what a queue answers only when no other has given messages. What was read when the
        program stopped waiting is given to the next read.
        """
        chosen = [each for each in self._kept if self.queues.get(each.owner.name) is each.owner]
        found = [each for each in chosen if each.owner.name not in paused]
        self._kept = [each for each in chosen if each.owner.name in paused]
        queues = [queue for name, queue in self.queues.items() if name not in paused]
        try:
            await self._read_into(found, queues, count, wait_s)
        except CurlewError as error:
            if not found:
                raise
            LOG.warning("group %s: not all queues could be read: %s", self._options.group, error)
        except BaseException:
            self._kept += found
            raise
        return found, []

    async def _read_into(
        self, found: list[Polled], queues: list[OwnedQueue], count: int, wait_s: float
    ) -> None:
        failure: CurlewError | None = None
        for queue in queues:
            if len(found) < count:
                try:
                    found += await self._pull(queue, count - len(found), 0.0)
                except CurlewError as error:
                    failure = failure or error
        self._turn(queues)
        if failure is not None:
            raise failure
        if found or wait_s <= 0 or not queues:
            return
        pulls = [asyncio.ensure_future(self._pull(each, count, wait_s)) for each in queues]
        try:
            waiting: set[asyncio.Future[list[Polled]]] = {*pulls}
            has_come = False
            while waiting and not has_come:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                has_come = any(each.result() for each in done)
        finally:
            for pull in pulls:
                pull.cancel()
            for answer in await asyncio.gather(*pulls, return_exceptions=True):
                if isinstance(answer, list):
                    found += answer

    def _turn(self, queues: list[OwnedQueue]) -> None:
        """Let another queue be the first next time."""
        if queues:
            first = queues[0].name
            self.queues[first] = self.queues.pop(first)

    async def _pull(self, queue: OwnedQueue, count: int, wait_s: float) -> list[Polled]:
        filter_text = self._options.topics.get(queue.name.topic)
        more = "" if filter_text is None else f"&filter={path_part(filter_text)}"
        lines, first = f"accept: {FRAME}\r\n", None
        if queue.reads_any:
            lines += "mq-read: any\r\n"
            first = await self._replicas.one_of(queue.name)
        first = first or await self._sender.leader_of_most([queue.name])
        try:
            answer, _ = await self._sender.call(
                "GET",
                f"/v1/topics/{path_part(queue.name.topic)}/queues/{queue.name.queue_id}/messages"
                f"?offset={queue.next_offset}&max_messages={count}&wait={wait_s:g}{more}",
                lines=lines,
                timeout_s=wait_s + self._session.timeout_s,
                retries=self._session.options.retries,
                is_long=True,
                first=first,
            )
        except (OffsetExpired, OffsetOutOfRange) as error:
            self._reset(queue, error)
            return []
        headers = answer.headers
        store_id = headers.get("mq-store-id", "").encode()
        messages = []
        if answer.body:
            messages = read_frame(memoryview(answer.body), queue.name, store_id, self._settle)
        queue.next_offset = int(headers["mq-next-offset"])
        queue.suggested(headers.get("mq-suggest-read"), headers.get("mq-up-to-date"))
        queue.add(messages)
        return messages

    def _reset(self, queue: OwnedQueue, error: OffsetExpired | OffsetOutOfRange) -> None:
        if self._options.offset_reset == "fail":
            raise error
        low, high = error.fields["min_offset"], error.fields["max_offset"]
        nearest = min(max(queue.next_offset, low), high)
        after = {"nearest": nearest, "earliest": low, "latest": high}[self._options.offset_reset]
        before, queue.next_offset = queue.next_offset, after
        LOG.warning("%s: %s; it goes on at %d, from %d", queue.name, error, after, before)

    def hand_back(self, decision: Decision) -> None:
        """Nobody takes it back: only a member's group has retries of it."""
        raise ValueError(
            f"{decision.message!r} cannot be handed back by who has chosen its queues; "
            "subscribe instead, or send it again"
        )

    async def say(self) -> None:
        """Commit what is done."""
        places = {
            name: queue.commit_offset()
            for name, queue in self.queues.items()
            if queue.commit_offset() > queue.committed
        }
        await self._places.commit(self._options.group, places)
        for name, offset in places.items():
            self.queues[name].committed = offset

    async def seek(self, queue: QueueName, offset: int) -> None:
        """Read on from there."""
        if queue not in self.queues:
            raise ValueError(f"{queue} is not chosen; chosen are {list(self.queues)}")
        self.queues[queue].is_dropped = True
        self.queues[queue] = OwnedQueue(queue, 0, offset)

    async def hush(self) -> None:
        """There are no signs of life."""

    async def close(self) -> None:
        """Nothing is to be done."""


def given_done(messages: list[Polled]) -> None:
    """The program is done with messages, but for those about which it has decided otherwise."""
    all_done([message for message in messages if not message.is_settled])
