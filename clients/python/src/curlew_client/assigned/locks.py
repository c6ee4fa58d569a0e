"""Locks of queues, for members that read in order: who owns a queue locks it before it reads.

A lock outlives a silent owner by up to `queue_lock_ms`, so that the next one does not overtake work
that still goes on.
"""

import json
from collections.abc import Callable
from time import monotonic
from typing import Final

from curlew_client.aio.sending import AsyncSender
from curlew_client.assigned.queues import OwnedQueue
from curlew_client.assigned.records import QueueName
from curlew_client.assigned.share import Share
from curlew_client.consuming.calls import LOG, is_passing
from curlew_client.errors import CurlewError, StateConflict
from curlew_client.session import Session
from curlew_client.wire.http1 import path_part

RENEW_S: Final = 20.0
"""How often locks are renewed at least; three times while they hold where that is less."""
AGAIN_S: Final = 0.2
"""After which a queue that another had locked is asked for again."""


class QueueLocks:
    """Of one member. On its event loop."""

    def __init__(self, session: Session, sender: AsyncSender, share: Share) -> None:
        self._session = session
        self._sender = sender
        self._share = share
        self._due_s = self._until_s = 0.0
        """When to renew, and when the node lets others have the queues, by the monotonic clock."""
        self._asked_s = -AGAIN_S

    async def renew(self, locked: Callable[[OwnedQueue], None]) -> None:
        """Lock what is not, and all again in time. `locked` is called for each that is new."""
        options = self._share.options
        if not options.in_order:
            return
        queues = [each for each in self._share.queues.values() if not each.is_leaving]
        if options.is_broadcast:
            names = {each.name for each in queues}  # everybody reads all
        elif not self._is_due(queues):
            return
        else:
            names = await self._locked(queues)
        for queue in queues:
            was_locked, queue.is_locked = queue.is_locked, queue.name in names
            if queue.is_locked and not was_locked:
                locked(queue)

    def _is_due(self, queues: list[OwnedQueue]) -> bool:
        now_s = monotonic()
        if all(queue.is_locked for queue in queues):
            return bool(queues) and now_s >= self._due_s
        return now_s >= self._asked_s + AGAIN_S

    async def _locked(self, queues: list[OwnedQueue]) -> set[QueueName]:
        """The queues that are locked by now."""
        self._asked_s = monotonic()
        try:
            names, held_s = await self._lock(queues)
        except CurlewError as error:
            if not is_passing(error) and not isinstance(error, StateConflict):
                raise
            LOG.warning(
                "group %s: queues cannot be locked now: %s", self._share.options.group, error
            )
            if monotonic() >= self._until_s:  # the request may have taken long
                return set()
            return {queue.name for queue in queues if queue.is_locked}
        self._until_s = self._asked_s + held_s
        self._due_s = self._asked_s + min(RENEW_S, held_s / 3)
        return names

    async def _lock(self, queues: list[OwnedQueue]) -> tuple[set[QueueName], float]:
        """The queues that the node has locked, and for how many seconds from the request on."""
        share = self._share
        asked = {
            "client_id": share.client_id,
            "generation": share.generation,
            "queues": [
                {"topic": each.name.topic, "queue_id": each.name.queue_id} for each in queues
            ],
        }
        answer, _ = await self._sender.call(
            "POST",
            f"/v1/groups/{path_part(share.options.group)}/queues:lock",
            json.dumps(asked).encode(),
            lines="content-type: application/json\r\n",
            timeout_s=self._session.timeout_s,
        )
        shown = json.loads(answer.body)
        names = {QueueName(each["topic"], each["queue_id"]) for each in shown["locked"]}
        return names, shown["lease_ms"] / 1_000
