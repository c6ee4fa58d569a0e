"""Retries that come with polls: leased messages, settled by their receipt handles."""

import asyncio
import time
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final

from curlew_client.aio.sending import AsyncSender
from curlew_client.assigned.options import MemberOptions
from curlew_client.consuming.calls import GroupCalls, LeasedGroup, ReceiveOptions
from curlew_client.consuming.decisions import Decision
from curlew_client.consuming.messages import Received
from curlew_client.consuming.working import Handler, Settler
from curlew_client.session import Session

LEASE_S_MIN: Final = 1.0
LEASE_S_MAX: Final = 30.0


class Retries:
    """Of one member. On its event loop; `decided` from any thread."""

    def __init__(
        self,
        session: Session,
        sender: AsyncSender,
        options: MemberOptions,
        handler: Handler,
        given: Callable[[], None],
    ) -> None:
        self._session = session
        self._sender = sender
        self._options = options
        self._handler = handler
        self._given = given
        self._loop = asyncio.get_running_loop()
        self._topics: dict[str, tuple[LeasedGroup, Settler]] = {}
        self.count = 0
        """Those that are not settled."""
        self._under_way = 0
        """Settled by hand, and not answered yet."""
        self._is_quiet = asyncio.Event()
        self._is_quiet.set()

    def take(self, shown: Sequence[dict[str, Any]]) -> list[Received[Any]]:
        """The messages of an answer; their leases are extended from now on."""
        found = []
        for each in shown:
            group, _ = self._of(each)
            message: Received[Any] = Received(each, self._by_hand)
            group.leases.add([message], monotonic())
            found.append(message)
        self.count += len(found)
        return found

    def _of(self, shown: dict[str, Any]) -> tuple[LeasedGroup, Settler]:
        topic = shown["topic"]
        if topic not in self._topics:
            lease_s = shown["invisible_until_ms"] / 1_000 - time.time_ns() / 1e9
            options = ReceiveOptions(
                topic,
                self._options.group,
                self._options.topics.get(topic),
                min(max(lease_s, LEASE_S_MIN), LEASE_S_MAX),
                self._options.hold_s,
            )
            group = LeasedGroup(GroupCalls(self._session, self._sender, options))
            settler = Settler(group, self._over, self._handler.concurrency)
            group.start()
            settler.start()
            self._topics[topic] = group, settler
        return self._topics[topic]

    def _over(self, decisions: Sequence[Decision]) -> None:
        self.count -= len(decisions)
        self._given()

    def decided(self, topic: str, decisions: list[Decision]) -> None:
        """A handler has decided."""
        if decisions:
            self._topics[topic][1].add(decisions)

    def _by_hand(self, decision: Decision) -> Any:
        settled = self._now(decision)
        if self._handler.is_async:
            return settled
        return asyncio.run_coroutine_threadsafe(settled, self._loop).result()

    async def _now(self, decision: Decision) -> None:
        self._under_way += 1
        self._is_quiet.clear()
        try:
            await self._topics[decision.message.topic][1].now(decision)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._is_quiet.set()

    def release(self, messages: Sequence[Received[Any]]) -> None:
        """Others may have them at once."""
        for message in messages:
            message.is_settled = True
            self._topics[message.topic][1].add([Decision("release", message)])

    async def stop(self) -> None:
        """Settle what is left, wait for what is settled by hand, and end."""
        await self._is_quiet.wait()
        for group, settler in self._topics.values():
            await settler.stop()
            await group.stop()
