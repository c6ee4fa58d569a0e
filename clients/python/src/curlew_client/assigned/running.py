"""A consumer of queues of its own, at work on an event loop: polls, handlers, what it says.

One poll is under way at a time. It waits long when there is nothing to do, and shortly while
handlers have messages, so that what they decide is said within a second.
"""

import asyncio
import inspect
import json
from collections import deque
from contextlib import suppress
from time import monotonic
from typing import Any, Final, NamedTuple

from curlew_client.aio.sending import AsyncSender
from curlew_client.assigned.locks import QueueLocks
from curlew_client.assigned.offset_file import OffsetFile
from curlew_client.assigned.options import MemberOptions, Rebalance
from curlew_client.assigned.queues import OwnedQueue, all_done
from curlew_client.assigned.records import WAITING, PollAnswer, Polled, Settle, read_poll
from curlew_client.assigned.retries import Retries
from curlew_client.assigned.share import News, Said, Share
from curlew_client.consuming.calls import LOG, RETRY_S, WAIT_S, is_passing
from curlew_client.consuming.decisions import Decision
from curlew_client.consuming.messages import Received
from curlew_client.consuming.working import Handler, Handlers, Work
from curlew_client.errors import CurlewError, PreconditionFailed, StaleGeneration
from curlew_client.session import Session
from curlew_client.wire.frames import CONTENT_TYPE as FRAME
from curlew_client.wire.http1 import path_part

SAY_S: Final = 1.0
"""How long a decision waits for the next poll, at most."""
SHORT_S: Final = 0.1
"""How long a poll waits while some of the queues are not read."""
ABSORB_S: Final = 0.002
"""How long what handlers decide waits for more of it, unless there is much."""
ABSORB_COUNT: Final = 64
FAILURE_PAUSE_S: Final = 1.0
SAVE_S: Final = 5.0
LET_GO_S: Final = 30.0
"""How long a queue that goes to another member waits for its handlers."""
LAST_POLLS: Final = 20
WITHOUT_PART_S: Final = 4.0
"""A node answers a poll so long after the wait at the latest, without the part of a node that is
silent, for which it waits for 3 s."""
POLL_LINES: Final = f"content-type: application/json\r\naccept: {FRAME}\r\n"


class Patience(NamedTuple):
    """How long a poll may take that waits for `wait_s`, where `timeout_s` is the client's."""

    wait_s: float
    timeout_s: float

    @property
    def whole_s(self) -> float:
        """For a whole answer, which may be large, over a slow link."""
        return self.wait_s + self.timeout_s

    @property
    def silent_s(self) -> float:
        """For the first byte, after which another node is asked: half of the timeout beyond the
        wait, so that the other half is for that one; never so short that a node is given up that
        waits for the part of another (`WITHOUT_PART_S`)."""
        return self.wait_s + max(self.timeout_s / 2, WITHOUT_PART_S)


class RunningMember:
    """Start it, `drain` it, once each."""

    def __init__(
        self, session: Session, sender: AsyncSender, options: MemberOptions, handler: Handler
    ) -> None:
        """Raises `ValueError` when the offset file is damaged or somebody else's."""
        self._session = session
        self._sender = sender
        self._options = options
        self._handler = handler
        self._hold_s = options.hold_s
        self._loop = asyncio.get_running_loop()
        path, namespace = options.offset_file, session.options.namespace
        self._file = None if path is None else OffsetFile(path, options.group, namespace)
        places = None if self._file is None else self._file.places
        self._share = Share(options, session.client_id[-127:], places)
        self._retries = Retries(session, sender, options, handler, self._stir)
        name = f"curlew-{options.group}"
        self._handlers = Handlers(handler, name, self._acked, self._decided, self._begins)
        self._locks = QueueLocks(session, sender, self._share)
        self._ended: deque[tuple[Work | None, list[Decision]]] = deque()
        self._acks: deque[Polled] = deque()
        self._is_woken = False
        self._soon = self._loop.call_soon if handler.is_async else self._loop.call_soon_threadsafe
        self._stirred = asyncio.Event()
        self._polled_s = self._saved_s = monotonic()
        self._let_go_s: float | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._is_draining = False
        self._poller: asyncio.Task[None] | None = None
        self.failure: asyncio.Future[None] = self._loop.create_future()
        """Done with an error that ends the worker, such as a wrong key."""

    def start(self) -> None:
        """Begin to poll and to handle."""
        self._handlers.start()
        self._poller = self._loop.create_task(self._poll_on())
        self._poller.add_done_callback(self._polling_ended)

    def pause(self) -> None:
        """Read nothing more until `resume`; what is held is handled. On the event loop."""
        self._share.is_paused = True

    def resume(self) -> None:
        """Read again. On the event loop."""
        self._share.is_paused = False
        self._stir()

    def _polling_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and not self.failure.done():
            error = task.exception()
            if error is not None:
                self.failure.set_exception(error)

    def _stir(self) -> None:
        self._stirred.set()

    # --- polling

    async def _poll_on(self) -> None:
        await self._make_group()
        while True:
            self._give_up_overdue()
            await self._locks.renew(self._next)
            unread = self._share.unread(self._handler.span_max)
            count = self._room()
            if (count and len(unread) < len(self._share.queues)) or not self._share.queues:
                await self._poll(max(count, 1), self._wait_s(bool(unread)), unread)
            elif not await self._is_stirred():
                await self._poll(1, 0.0, list(self._share.queues))
            await self._save(SAVE_S)

    def _wait_s(self, has_unread: bool) -> float:
        if has_unread or self._share.is_letting_go:
            return SHORT_S
        is_busy = self._share.has_to_say or self._share.held[0] or self._retries.count
        return SAY_S if is_busy else WAIT_S

    async def _is_stirred(self) -> bool:
        """Whether something has changed before a poll is due."""
        self._stirred.clear()
        if self._room() and len(self._share.unread(self._handler.span_max)) < len(
            self._share.queues
        ):
            return True
        left_s = self._polled_s + SAY_S - monotonic()
        if left_s <= 0:
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await self._stirred.wait()
                return True
        return False

    def _room(self) -> int:
        """How many messages to fetch now; 0: none. While handlers have one half, the other is
        fetched."""
        count, size = self._share.held
        free = self._handler.messages_max - count - self._retries.count
        is_full = size >= self._handler.bytes_max or free < max(self._handler.messages_max // 4, 1)
        return 0 if is_full else min(free, max(self._handler.messages_max // 2, 1))

    async def _poll(self, count: int, wait_s: float, unread: Any) -> None:
        body, said = self._share.poll(count, wait_s, unread)
        began_s = monotonic()
        try:
            news, shown = await self._ask(body, said, wait_s)
        except StaleGeneration as error:
            LOG.warning("%s is a member of group %s no more: %s", *self._names, error)
            await self._lost()
            return
        except CurlewError as error:
            if not is_passing(error):
                raise
            LOG.warning("nothing can be polled now: %s", error)
            await asyncio.sleep(FAILURE_PAUSE_S)
            return
        self._polled_s = monotonic()
        self._stay(began_s + shown["lease_ms"] / 1_000)
        await self._take(news)
        self._handlers.put(self._retries.take(shown["retries"]))
        self._let_go()
        if shown["poll_again_ms"] and not self._share.has_to_say:
            await asyncio.sleep(shown["poll_again_ms"] / 1_000)

    @property
    def _names(self) -> tuple[str, str]:
        return self._share.client_id, self._options.group

    async def _ask(self, body: bytes, said: Said, wait_s: float) -> tuple[News, dict[str, Any]]:
        patience = Patience(wait_s, self._session.timeout_s)
        shown, found = await ask(self._sender, self._share, body, said, patience, self._by_hand)
        return self._share.hear(shown, found, said), shown

    def _stay(self, until_s: float) -> None:
        """The member has its queues until then, on the monotonic clock, unless it polls again."""
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = self._loop.call_later(until_s - monotonic(), self._expired)

    def _expired(self) -> None:
        if self._share.queues:
            LOG.warning("%s had no answer for too long: group %s has its queues", *self._names)
            self._share.lose()

    async def _take(self, news: News) -> None:
        for text in news.warnings:
            LOG.warning("group %s: %s", self._options.group, text)
        if news.rebalance is not None:
            await self._tell(news.rebalance)
        if news.refused:
            self._loop.call_later(RETRY_S, self._again, news.refused)
        for queue, messages in news.messages:
            if not self._options.in_order:
                self._handlers.put(list(messages))
            elif not queue.is_dropped:
                queue.line.extend(messages)
                self._next(queue)

    async def _tell(self, rebalance: Rebalance) -> None:
        if rebalance.lost:
            await self._save(0)
        listener = self._options.listener
        if listener is None:
            return
        try:
            if inspect.iscoroutinefunction(listener):
                await listener(rebalance)
            else:
                await asyncio.to_thread(listener, rebalance)
        except Exception:  # noqa: BLE001
            LOG.exception("the listener of group %s failed", self._options.group)

    async def _lost(self) -> None:
        rebalance = self._share.lose()
        if rebalance is not None:
            await self._tell(rebalance)

    def _let_go(self) -> None:
        """Confirm a generation when handlers of queues that leave are done, or took too long."""
        if not self._share.is_letting_go:
            self._let_go_s = None
        elif self._let_go_s is None:
            self._let_go_s = monotonic() + LET_GO_S
        elif monotonic() >= self._let_go_s:
            self._share.let_go()

    async def _make_group(self) -> None:
        """Make the group if it is not there, where its start or mode is said."""
        options = self._options
        settings: dict[str, Any] = {} if options.start is None else {"start": options.start}
        if options.is_broadcast:
            settings["mode"] = "broadcast"
        while settings:
            try:
                await self._sender.call(
                    "PUT",
                    f"/v1/groups/{path_part(options.group)}",
                    json.dumps(settings).encode(),
                    lines="content-type: application/json\r\nif-none-match: *\r\n",
                    timeout_s=self._session.timeout_s,
                    retries=self._session.options.retries,
                )
            except PreconditionFailed:
                return  # it has begun already, and goes on where it is
            except CurlewError as error:
                if not is_passing(error):
                    raise
                LOG.warning("the group cannot be made now: %s", error)
                await asyncio.sleep(FAILURE_PAUSE_S)
            else:
                return

    # --- handling

    def _begins(self, message: Received[Any]) -> bool:
        """In a handler's thread or task."""
        if not isinstance(message, Polled):
            return True
        message.until_s = monotonic() + self._hold_s
        return bool(message.owner.begins(message))

    def _acked(self, message: Received[Any]) -> None:
        """In a handler's thread or task."""
        if self._options.in_order or not isinstance(message, Polled):
            self._decided([message], [Decision("ack", message)])
            return
        self._acks.append(message)
        if not self._is_woken:
            self._is_woken = True
            with suppress(RuntimeError):  # a handler that outlived its worker
                self._soon(self._wake)

    def _decided(self, work: Work, decisions: list[Decision]) -> None:
        """In a handler's thread or task."""
        if not isinstance(work[0], Polled):
            self._retries.decided(work[0].topic, decisions)
            return
        self._add(work, decisions)

    def _by_hand(self, decision: Decision) -> Any:
        """A handler settles a message itself: it is said with the next poll."""
        self._add(None, [decision])
        return _nothing() if self._handler.is_async else None

    def _add(self, work: Work | None, decisions: list[Decision]) -> None:
        self._ended.append((work, decisions))
        if not self._is_woken:
            self._is_woken = True
            with suppress(RuntimeError):  # a handler that outlived its worker
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self._options.in_order or len(self._ended) + len(self._acks) >= ABSORB_COUNT:
            self._absorb()
        else:
            self._loop.call_later(ABSORB_S, self._absorb)

    def _absorb(self) -> None:
        """See what handlers have decided."""
        self._is_woken = False
        acks = self._acks
        all_done([acks.popleft() for _ in range(len(acks))])
        while self._ended:
            work, decisions = self._ended.popleft()
            delay_s = 0.0
            for decision in decisions:
                delay_s = max(delay_s, self._settle(decision))
            if work is not None and self._options.in_order:
                self._go_on(work, delay_s)
        self._share.put_into_effect()
        self._stir()

    def _settle(self, decision: Decision) -> float:
        """Seconds until the message is tried again in its place, if it is."""
        message = decision.message
        assert isinstance(message, Polled)
        queue: OwnedQueue = message.owner
        if queue.is_dropped:
            return 0.0
        if decision.kind == "ack":  # by far the most
            queue.done(message)
        elif self._options.is_broadcast and not self._options.in_order:
            LOG.warning("%r failed, and is left out: nobody else has it to do", message)
            queue.done(message)
        elif decision.kind == "release":
            return self._released(message)
        elif self._options.in_order and self._is_tried_again(decision):
            delay_ms = decision.delay_ms
            return self._options.suspend_s if delay_ms is None else delay_ms / 1_000
        elif self._options.is_broadcast:
            LOG.warning("%r is given up: %s", message, decision.reason)
            queue.done(message)
        else:
            kind = "dead_letter" if self._options.in_order else decision.kind
            self._share.hand_back(decision._replace(kind=kind))
        return 0.0

    def _released(self, message: Polled) -> float:
        """Nobody has dealt with it: again here, unless the consumer ends."""
        if not self._options.in_order and not self._is_draining:
            self._loop.call_later(RETRY_S, self._again, [message])
        message.has_begun = False
        message.tries -= 1  # what is released does not count
        return RETRY_S

    def _is_tried_again(self, decision: Decision) -> bool:
        most = self._options.max_attempts
        return decision.kind == "nack" and (most is None or decision.message.attempt < most)

    def _again(self, messages: list[Polled]) -> None:
        """Hand messages to a handler once more, unless they are somebody else's by now."""
        for message in messages:
            queue: OwnedQueue = message.owner
            if queue.is_dropped or queue.is_leaving or self._is_draining:
                continue
            queue.again(message)
            if self._options.in_order:
                queue.line.appendleft(message)
                self._next(queue)
            else:
                self._handlers.put([message])

    # --- in order

    def _next(self, queue: OwnedQueue) -> None:
        """Give a handler what is next in a queue, unless one has what is before it."""
        if queue.at_work or not queue.line or queue.is_dropped or queue.is_leaving:
            return
        if not queue.is_locked or self._is_draining:
            return
        count = min(self._handler.batch or 1, len(queue.line))
        queue.at_work = [queue.line.popleft() for _ in range(count)]
        self._handlers.put(list(queue.at_work))

    def _go_on(self, work: Work, delay_s: float) -> None:
        """A handler is done with the messages of a queue; those that are not done come first."""
        queue: OwnedQueue = work[0].owner  # type: ignore[attr-defined]
        left = [each for each in queue.at_work if each.state == WAITING]
        for message in left:
            queue.again(message)
        queue.line.extendleft(reversed(left))
        if left and delay_s > 0:
            self._loop.call_later(delay_s, self._free, queue)
        else:
            self._free(queue)

    def _free(self, queue: OwnedQueue) -> None:
        queue.at_work = []
        self._next(queue)

    def _give_up_overdue(self) -> None:
        """What handlers have had for too long goes back to the group, or is left out."""
        if self._options.in_order:
            return
        for queue in self._share.queues.values():
            for message in queue.overdue(monotonic()):
                LOG.warning(
                    "%r was held for %g s; see consume_timeout", message, self._options.hold_s
                )
                message.is_settled = True
                self._settle(Decision("nack", message, None, "consume timeout"))

    # --- ending

    def abandon(self) -> None:
        """Give up what a consumer has that was never started."""
        if self._file is not None:
            self._file.close()

    async def _save(self, after_s: float) -> None:
        """Write the offset file when the last time is so long ago."""
        if self._file is not None and monotonic() >= self._saved_s + after_s:
            await asyncio.to_thread(self._file.save, self._share.places())
            self._saved_s = monotonic()

    async def drain(self, within_s: float) -> None:
        """Poll no more, wait for handlers, commit and hand back, and leave the group."""
        self._is_draining = True
        if self._poller is not None:
            self._poller.cancel()
            await asyncio.gather(self._poller, return_exceptions=True)
        if self._expiry is not None:
            self._expiry.cancel()
        unbegun = [each for work in self._handlers.end() for each in work]
        self._retries.release([each for each in unbegun if not isinstance(each, Polled)])
        await self._handlers.ended(within_s)
        self._absorb()
        try:
            await self._say_goodbye()
        except CurlewError as error:
            LOG.warning("group %s was not told how far all is done: %s", self._options.group, error)
        await self._retries.stop()
        if self._file is not None:
            await self._save(0)
            self._file.close()

    async def _say_goodbye(self) -> None:
        """Say all that is left, and leave."""
        for _ in range(LAST_POLLS):
            if not self._share.has_to_say:
                break
            body, said = self._share.poll(1, 0.0, list(self._share.queues))
            news, shown = await self._ask(body, said, 0.0)
            self._retries.release(self._retries.take(shown["retries"]))
            for text in news.warnings:
                LOG.warning("group %s: %s", self._options.group, text)
            if news.refused:
                break
        if self._share.assignment_id is not None:
            client_id, group = map(path_part, self._names)
            await self._sender.call(
                "DELETE",
                f"/v1/groups/{group}/members/{client_id}",
                timeout_s=self._session.connect_timeout_s,
            )


async def ask(
    sender: AsyncSender,
    share: Share,
    body: bytes,
    said: Said,
    patience: Patience,
    settle: Settle,
) -> PollAnswer:
    """Send a poll that `share` has made, to the leader of most of its queues. What it said without
    an answer the next one says again.

    When that node is silent, another one is asked the same within the time that is left, without
    waiting: entries are fenced by member and generation, commits go forward only, and a hand-back
    that was taken already is over.
    """

    def again() -> bytes:
        share.unanswered(said)
        return json.dumps({**json.loads(body), "wait": 0}).encode()

    try:
        first = await sender.leader_of_most(share.queues)
        answer, url = await sender.call(
            "POST",
            f"/v1/groups/{path_part(share.options.group)}/members:poll?body=base64",
            body,
            lines=POLL_LINES,
            timeout_s=patience.whole_s,
            is_long=True,
            first=first,
            begins_by_s=monotonic() + patience.silent_s,
            again=again,
        )
        return read_poll(answer, url, settle)
    except BaseException:
        share.unanswered(said)
        raise


async def _nothing() -> None:
    return None
