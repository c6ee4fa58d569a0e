"""Handing messages back untouched: visible at once in their place, no attempt counted.

What the log says of deliveries is an absolute number for each message, so a release writes the
number of before. A kill that comes first counts the attempt; none is ever forgotten. In a group in
order a message keeps its turn: those behind it of its key wait on. Event loop only.
"""

from collections.abc import Sequence

from app.broker.groups.groups import Groups
from app.broker.journal.append_future import AppendFuture
from app.broker.leasing.subscriptions import Held, Subscription
from app.broker.tracing.message_trace import MessageTrace
from app.broker.tracing.trace_notes import TraceKind


class Releases:
    """Used by receives whose client is gone, and by settles. One per broker."""

    def __init__(self, groups: Groups, message_trace: MessageTrace) -> None:
        self._groups = groups
        self._consumer_journal = groups.consumer_journal
        self._message_trace = message_trace

    def write_down(self, subscription: Subscription, returned: Sequence[Held]) -> AppendFuture:
        """The lease tables have just taken these back, in this turn: let the log know, and those
        who wait.

        Raises what `Store.append` raises; then others have the messages all the same, and a crash
        before their next delivery counts the attempt.
        """
        subscription.line.wake_one()
        self._groups.tell_of_room(subscription.in_flight, subscription.group)
        for queue, offset, _ in returned:
            group, topic, _ = queue.key
            place = queue.stored_topic, queue.stored_queue_id
            self._message_trace.note(TraceKind.RELEASED, topic, place, (offset,), group=group)
        return self._consumer_journal.take_back(subscription, returned)
