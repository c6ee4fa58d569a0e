"""What forbids a batch, and what forbids each entry of it.

A large batch is checked in several turns of the event loop.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from app.broker.delays.delayed_sends import DelayedSends
from app.broker.journal.append_future import with_outcome
from app.broker.ports import Topic
from app.broker.produce.batch_parts import SMALL_MESSAGES_MAX, weight_of
from app.broker.produce.message_types import check_type
from app.broker.produce.topic_admission import check_body, check_write_queue
from app.broker.results import BatchItem, SendResult
from app.broker.topic_lookup import check_here
from app.domain.errors import BatchTooLarge, CurlewError, InvalidRequest
from app.domain.limits import Limits
from app.domain.message import check_message

CHECKED_A_TURN_MAX: Final = 4_000
"""Messages of a batch that one turn checks; weighed as for `TURN_MESSAGES_MAX`."""


class EntryChecks:
    """Checks of a batch by the limits of the node and the settings of the topic."""

    def __init__(self, limits: Limits, delayed: DelayedSends) -> None:
        self._limits = limits
        self._delayed = delayed

    async def errors_of(
        self, topic: Topic, items: Sequence[BatchItem | CurlewError], *, is_fresh: bool = True
    ) -> list[CurlewError | None]:
        """What forbids each entry, if anything does; of a large batch in several turns."""
        if len(items) <= SMALL_MESSAGES_MAX:
            check = self.check_item
            return [check(topic, item, is_fresh=is_fresh) for item in items]
        errors: list[CurlewError | None] = []
        weight = 0
        for item in items:
            weight += 1 if isinstance(item, CurlewError) else weight_of(item.message)
            if weight > CHECKED_A_TURN_MAX:
                weight = 0
                await asyncio.sleep(0)
            errors.append(self.check_item(topic, item, is_fresh=is_fresh))
        return errors

    def check_item(
        self, topic: Topic, item: BatchItem | CurlewError, *, is_fresh: bool = True
    ) -> CurlewError | None:
        """What forbids this entry, if anything does."""
        if isinstance(item, CurlewError):
            return with_outcome(item, "not_stored")
        try:
            check_message(item.message, self._limits)
            if item.due is not None or topic.is_guarded:
                check_type(topic, item.message, is_delayed=item.due is not None)
                self._delayed.due_ms(item.due)
                if is_fresh:
                    check_body(topic, len(item.message.body))
            if item.queue_id is not None:
                (check_write_queue if is_fresh else check_here)(topic, item.queue_id)
        except CurlewError as error:
            return with_outcome(error, "not_stored")
        return None

    def check_batch(self, items: Sequence[BatchItem | CurlewError]) -> None:
        """Raise `InvalidRequest` or `BatchTooLarge` by number and bytes."""
        limits = self._limits
        if not items:
            raise InvalidRequest("the batch has no messages")
        if len(items) > limits.batch_messages_max:
            raise BatchTooLarge(
                f"the batch has {len(items)} messages; at most {limits.batch_messages_max} are"
                " taken",
                fields={"limit": limits.batch_messages_max},
            )
        size = sum([len(item.message.body) for item in items if isinstance(item, BatchItem)])
        if size > limits.batch_bytes_max:
            raise BatchTooLarge(
                f"the bodies have {size} bytes; at most {limits.batch_bytes_max} are taken",
                fields={"limit_bytes": limits.batch_bytes_max},
            )


def refuse_all(errors: Sequence[CurlewError | None]) -> list[SendResult | CurlewError]:
    """Results of a strict batch with a bad entry: nothing was stored, each entry says why."""
    first_bad = next(index for index, error in enumerate(errors) if error is not None)
    refused = InvalidRequest(
        f"not stored, because entry {first_bad} of this batch is not valid and the batch is strict",
        hint="mend that entry, or send without handling=strict",
        outcome="not_stored",
    )
    return [error or refused for error in errors]
