"""Receive, settle and extend for one group in one topic, over asyncio; what extends leases."""

import asyncio
import json
import logging
import uuid
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, NamedTuple, TypeVar

from curlew_client.aio.sending import OF_THE_NODE, AsyncSender
from curlew_client.consuming.decisions import (
    GONE,
    Decision,
    Settled,
    settle_body,
    settled_of,
)
from curlew_client.consuming.leaders import Leaders, by_leader
from curlew_client.consuming.leases import Leases
from curlew_client.consuming.messages import Received
from curlew_client.errors import CurlewError, NotFound, ServiceError
from curlew_client.producing.messages import check_name
from curlew_client.producing.routes import is_not_leader
from curlew_client.session import Session
from curlew_client.wire.documents import loads
from curlew_client.wire.durations import Duration, seconds_of
from curlew_client.wire.http1 import path_part
from curlew_client.wire.problems import error_of, error_of_problem

T = TypeVar("T")

LOG: Final = logging.getLogger("curlew_client")
WAIT_S: Final = 20.0
"""Of one long poll."""
SETTLE_MAX: Final = 1_000
"""Messages of one settle."""
RETRY_S: Final = 5.0
"""After which what could not be settled is settled again."""
EXTEND_CHECK_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class ReceiveOptions:
    """What a consumer asks for, checked."""

    topic: str
    group: str
    filter: str | None = None
    invisible_s: float = 30.0
    hold_s: float = 900.0

    @classmethod
    def of(
        cls,
        topic: str,
        group: str,
        filter_text: str | None,
        invisible: Duration,
        consume_timeout: Duration,
    ) -> "ReceiveOptions":
        """Raises `TypeError` or `ValueError` with the right name."""
        check_name("topic", topic)
        check_name("group", group)
        if filter_text is not None and not isinstance(filter_text, str):
            raise TypeError(f"filter is a str, not {type(filter_text).__name__}")
        invisible_s = seconds_of("invisible", invisible)
        if invisible_s < 1:
            raise ValueError(f"invisible is {invisible_s:g} s; a lease has 1 s or more")
        hold_s = seconds_of("consume_timeout", consume_timeout)
        return cls(topic, group, filter_text, invisible_s, hold_s)


class Extended(NamedTuple):
    """The status of an extension, and the new handle of its lease."""

    message: Received[Any]
    status: int
    handle: str | None


class GroupCalls:
    """The requests of one consumer. On the event loop of its sender."""

    def __init__(self, session: Session, sender: AsyncSender, options: ReceiveOptions) -> None:
        self._session = session
        self._sender = sender
        self.options = options
        self._target = (
            f"/v1/topics/{path_part(options.topic)}/groups/{path_part(options.group)}/messages:"
        )
        self._leaders = Leaders(session.routes, options.topic)
        self._can_release = True
        self._open: dict[str, Any] | None = None
        """A receive that was given up before its answer was read."""

    async def receive(
        self,
        max_messages: int,
        wait_s: float,
        settle: Callable[[Decision], Any],
        max_bytes: int | None = None,
    ) -> list[Received[Any]]:
        """Lease messages, waiting for the first one. A repeated request gives the same ones."""
        options = self.options
        asked: dict[str, Any] = {
            "max_messages": max_messages,
            "wait": round(wait_s, 3),
            "invisible_ms": round(options.invisible_s * 1_000),
            "attempt_id": uuid.uuid4().hex,
            "client_id": self._session.client_id[-127:],
        }
        if options.filter is not None:
            asked["filter"] = options.filter
        if max_bytes is not None:
            asked["max_bytes"] = max_bytes
        return await self._receive(asked, wait_s, settle)

    async def _receive(
        self, asked: dict[str, Any], wait_s: float, settle: Callable[[Decision], Any]
    ) -> list[Received[Any]]:
        routes, leaders = self._session.routes, self._leaders
        if routes.is_on:
            await self._sender.learn_route(
                self.options.topic, monotonic() + self._session.timeout_s
            )
        for url in leaders.to_look_at(monotonic()):
            found = await self._look(url, {**asked, "wait": 0}, 0, settle)
            if found is None:
                break
            if found:
                return found
        else:
            only = leaders.to_wait_at(monotonic())
            if only is not None:
                found = await self._look(only, asked, wait_s, settle)
                if found is not None:
                    return found
        return await self._ask(asked, wait_s, settle, None)

    async def _look(
        self, url: str, asked: dict[str, Any], wait_s: float, settle: Callable[[Decision], Any]
    ) -> list[Received[Any]] | None:
        """What a leader gives; None: it cannot be asked, or refuses. Any node then says what is to
        be said, and gives what this one may have leased."""
        try:
            return await self._ask(asked, wait_s, settle, url)
        except CurlewError as error:
            self._failed(url, error)
            return None

    async def _ask(
        self,
        asked: dict[str, Any],
        wait_s: float,
        settle: Callable[[Decision], Any],
        leader: str | None,
    ) -> list[Received[Any]]:
        self._open = asked
        answer, url = await self._sender.call(
            "POST",
            f"{self._target}receive?body=base64",
            json.dumps(asked).encode(),
            lines="content-type: application/json\r\n",
            timeout_s=wait_s + self._session.timeout_s,
            retries=0 if leader is not None else self._session.options.retries,
            is_long=True,
            leader=leader,
        )
        try:
            shown = loads(answer.body)["messages"]
            self._open = None
            found = [Received(each, settle) for each in shown]
        except (ValueError, KeyError, TypeError):
            raise error_of(answer, url) from None
        self._leaders.gave(leader, found, asked["max_messages"])
        return found

    def _failed(self, url: str, error: CurlewError) -> None:
        is_of_the_node = isinstance(error, OF_THE_NODE)
        self._leaders.failed(url, error, monotonic(), is_of_the_node=is_of_the_node)

    async def recovered(self, settle: Callable[[Decision], Any]) -> list[Received[Any]]:
        """The messages of a receive that was given up, which nobody would have until their leases
        are over; none when it had leased none, or the node cannot be asked."""
        asked, self._open = self._open, None
        if asked is None:
            return []
        try:
            return await self._ask({**asked, "wait": 0}, 0, settle, None)  # who asks all shards
        except CurlewError as error:
            LOG.debug("a receive that was given up is left to its leases: %s", error)
            return []

    async def settle(self, decisions: Sequence[Decision]) -> list[Settled]:
        """Say what became of messages, at most `SETTLE_MAX` at once; the result of each, in any
        order. What one of several leaders does not answer for has its error as its problem."""
        parts = by_leader(decisions, lambda each: each.message)
        if len(parts) == 1:
            return await self._settle_at(*parts[0])
        return await _all_of([self._settle_part(*part) for part in parts])

    async def _settle_part(self, leader: str | None, decisions: list[Decision]) -> list[Settled]:
        try:
            return await self._settle_at(leader, decisions)
        except CurlewError as error:  # the request was refused, none of them: they are said again
            return [Settled(each, 503, {"detail": str(error)}) for each in decisions]

    async def _settle_at(self, leader: str | None, decisions: list[Decision]) -> list[Settled]:
        if not self._can_release:
            decisions = [_without_release(each) for each in decisions]
        body, ordered = settle_body(decisions)
        try:
            shown = await self._post("settle", body, leader)
        except ServiceError as error:
            if "results" in error.fields:
                return settled_of(error.fields, ordered)
            if self._can_release and "releases" in str(error) and error.status == 400:
                self._can_release = False  # an older node
                return await self._settle_at(leader, decisions)
            raise
        return settled_of(shown, ordered)

    async def extend(self, messages: Sequence[Received[Any]]) -> list[Extended]:
        """Hold leases for longer. Where there are several leaders, the messages of one that cannot
        be asked are left out."""
        parts = by_leader(messages, lambda each: each)
        if len(parts) == 1:
            return await self._extend_at(*parts[0])
        return await _all_of([self._extend_part(*part) for part in parts])

    async def _extend_part(
        self, leader: str | None, messages: list[Received[Any]]
    ) -> list[Extended]:
        try:
            return await self._extend_at(leader, messages)
        except CurlewError as error:
            LOG.warning("leases of one shard cannot be extended now: %s", error)
            return []

    async def _extend_at(self, leader: str | None, messages: list[Received[Any]]) -> list[Extended]:
        handles = [message.receipt_handle for message in messages]
        asked = {
            "receipt_handles": handles,
            "invisible_ms": round(self.options.invisible_s * 1_000),
        }
        try:
            shown = await self._post("extend", json.dumps(asked).encode(), leader)
        except ServiceError as error:
            if "results" not in error.fields:
                raise
            shown = error.fields
        return [
            Extended(message, each["status"], each.get("new_receipt_handle"))
            for message, each in zip(messages, shown["results"], strict=True)
        ]

    async def _post(self, what: str, body: bytes, leader: str | None) -> Any:
        """Straight to the leader; over any node while it cannot be reached, when it leads no more,
        and when it refuses for now, as that node tries again."""
        if leader is not None and self._leaders.may_ask(leader, monotonic()):
            try:
                return await self._post_to(leader, what, body)
            except CurlewError as error:
                if not (error.retryable or isinstance(error, OF_THE_NODE) or is_not_leader(error)):
                    raise
                self._failed(leader, error)
        return await self._post_to(None, what, body)

    async def _post_to(self, leader: str | None, what: str, body: bytes) -> Any:
        answer, _ = await self._sender.call(
            "POST",
            self._target + what,
            body,
            lines="content-type: application/json\r\n",
            timeout_s=self._session.timeout_s,
            retries=0 if leader is not None else self._session.options.retries,
            leader=leader,
        )
        return loads(answer.body)


async def _all_of(parts: Sequence[Coroutine[Any, Any, list[T]]]) -> list[T]:
    """The results of all, when each has ended; then what one of them raised."""
    found = await asyncio.gather(*parts, return_exceptions=True)
    results: list[T] = []
    for each in found:
        if isinstance(each, BaseException):
            raise each
        results += each
    return results


class LeasedGroup:
    """A consumer at work: its calls, its leases, and the task that extends them."""

    def __init__(self, calls: GroupCalls) -> None:
        self.calls = calls
        self.leases = Leases(calls.options.invisible_s, calls.options.hold_s)
        self._extender: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        """Held while handles change or are used, so that none is used that an extension voids."""

    def start(self) -> None:
        """Begin to extend leases."""
        self._extender = asyncio.get_running_loop().create_task(self._extend_on())

    async def stop(self) -> None:
        """End it."""
        if self._extender is not None:
            self._extender.cancel()
            await asyncio.gather(self._extender, return_exceptions=True)
            self._extender = None

    async def receive(
        self,
        max_messages: int,
        wait_s: float,
        settle: Callable[[Decision], Any],
        max_bytes: int | None = None,
    ) -> list[Received[Any]]:
        """As `GroupCalls.receive`; their leases are extended from now on."""
        messages = await self.calls.receive(max_messages, wait_s, settle, max_bytes)
        self.leases.add(messages, monotonic())
        return messages

    async def recovered(self, settle: Callable[[Decision], Any]) -> list[Received[Any]]:
        """As `GroupCalls.recovered`."""
        return await self.calls.recovered(settle)

    async def settle(self, decisions: Sequence[Decision]) -> list[Decision]:
        """Settle; those that were not, because the node could not be asked or had no time."""
        if not decisions:
            return []
        try:
            async with self._turn:
                results = await self.calls.settle(decisions)
        except CurlewError as error:
            LOG.warning(
                "%d messages of group %s cannot be settled now: %s",
                len(decisions),
                self.calls.options.group,
                error,
            )
            return list(decisions)
        left: list[Decision] = []
        for decision, status, problem in results:
            if problem is not None and status >= 500:
                left.append(decision)
                continue
            self.leases.drop(decision.message)
            if problem is not None:
                self._tell(decision, status, problem)
        return left

    async def settle_now(self, decision: Decision) -> None:
        """Settle one message; raises what the node says against it."""
        async with self._turn:
            results = await self.calls.settle([decision])
        self.leases.drop(decision.message)
        for _, status, problem in results:
            if problem is not None:
                raise error_of_problem({"code": "CONFLICT", **problem}, status)

    def _tell(self, decision: Decision, status: int, problem: dict[str, Any]) -> None:
        what = "its lease was over, so it is delivered again" if status in GONE else "refused"
        LOG.warning(
            "%r was not settled (%s): %s: %s",
            decision.message,
            decision.kind,
            what,
            problem.get("detail"),
        )

    async def _extend_on(self) -> None:
        while True:
            await asyncio.sleep(min(EXTEND_CHECK_S, self.leases.invisible_s / 6))
            await self.extend_due(monotonic())

    async def extend_due(self, now_s: float) -> None:
        """Extend what is due."""
        for message in self.leases.overdue(now_s):
            LOG.warning(
                "%r was held for %g s and is delivered again; see consume_timeout",
                message,
                self.calls.options.hold_s,
            )
        async with self._turn:
            await self._extend(self.leases.due(now_s))

    async def _extend(self, due: list[Received[Any]]) -> None:
        for start in range(0, len(due), SETTLE_MAX):
            some = due[start : start + SETTLE_MAX]
            try:
                results = await self.calls.extend(some)
            except CurlewError as error:
                LOG.warning("leases cannot be extended now: %s", error)
                return
            for message, status, handle in results:
                if status in GONE:
                    self.leases.drop(message)
                else:
                    self.leases.extended(message, handle, monotonic())


def is_passing(error: CurlewError) -> bool:
    """Whether a consumer goes on after this error of a receive."""
    return error.retryable and not isinstance(error, NotFound)


def _without_release(decision: Decision) -> Decision:
    return decision._replace(kind="nack", delay_ms=0) if decision.kind == "release" else decision
