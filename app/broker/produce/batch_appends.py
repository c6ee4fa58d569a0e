"""Appending the entries of a batch: one append for each queue, or all as one step.

A large batch is appended in several turns of the event loop, unless it is strict.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, cast

from app.broker.delays.delayed_sends import DELAYED_A_TURN, Delayed, DelayedSends, Waiting
from app.broker.journal.append_future import AppendFuture, with_outcome
from app.broker.journal.send_future import Sends, begun
from app.broker.ports import Store, Topic
from app.broker.produce.batch_parts import parts_of, ranges_of
from app.broker.produce.send_deadlines import Deadline, is_safe_by, refuse_unsafe, results_by
from app.broker.produce.send_steps import Chosen, SendStep, fill_in, made
from app.broker.results import BatchItem, SendResult
from app.domain.errors import CurlewError
from app.domain.positions import FlushMode
from app.store import Appended


class _Part(NamedTuple):
    """Messages of one queue that are being stored."""

    queue_id: int
    indexes: Sequence[int]
    """Their places in the batch."""
    appended: Appended
    confirmation: AppendFuture


class BatchAppends:
    """Takes entries that are checked, and the queue of each. Event loop only."""

    def __init__(self, store: Store, delayed: DelayedSends, sends: Sends | None) -> None:
        self._store = store
        self._sends = sends
        self._delayed = delayed

    async def by_queue(
        self,
        topic: Topic,
        items: Sequence[BatchItem | CurlewError],
        chosen: dict[int, list[int]],
        errors: list[CurlewError | None],
        flush: FlushMode | None,
        deadline: Deadline,
    ) -> list[SendResult | CurlewError]:
        """One append per queue, then one wait for each.

        No await lies between the first append and the last, so they share one write; but a large
        batch is appended in several turns of the loop, and others may come between its parts. When
        one part of a queue is refused or fails, so is the rest of that queue: who repeats what was
        not stored keeps the order.
        """
        results: list[SendResult | CurlewError | None] = list(errors)
        pending: list[_Part] = []
        refusals: dict[int, CurlewError] = {}
        delayed = await self._append_delayed(topic, items, chosen, results, flush)
        for queue_id, indexes, messages, begins_turn in parts_of(items, chosen):
            if begins_turn:
                await asyncio.sleep(0)
            refusal = refusals.get(queue_id) or _failure_before(pending, queue_id)
            if refusal is None:
                confirmation = begun(self._sends, len(messages), topic)
                try:
                    appended = self._store.append(
                        topic.name,
                        queue_id,
                        messages,
                        flush or topic.flush,
                        confirmation.done,
                        topic.generation,
                        confirmation.answer,
                    )
                except CurlewError as error:
                    refusal = with_outcome(error, "not_stored")
                else:
                    pending.append(_Part(queue_id, indexes, appended, confirmation))
            if refusal is not None:
                refusals[queue_id] = refusal
                _fill(results, indexes, refusal)
        for part in pending:
            await _fill_confirmed(results, topic.name, part, deadline)
        for waiting in delayed:
            if len(delayed) > 1:
                await asyncio.sleep(0)
            await _fill_delayed(results, *waiting, deadline)
        return cast("list[SendResult | CurlewError]", results)

    async def together(
        self,
        topic: Topic,
        items: Sequence[BatchItem | CurlewError],
        chosen: dict[int, list[int]],
        flush: FlushMode | None,
        deadline: Deadline,
    ) -> list[SendResult | CurlewError]:
        """A strict batch as one step: all is stored or nothing, also in a crash. It is appended in
        one turn; the step of a large one is made before on a thread."""
        queues = {index: queue_id for queue_id, indexes in chosen.items() for index in indexes}
        due_ms = self._delayed.due_ms

        def made_step() -> SendStep:
            sent = [
                Chosen(topic, queues[index], item, due_ms(item.due))
                for index, item in enumerate(items)
                if isinstance(item, BatchItem)
            ]
            return SendStep(self._delayed, sent)

        try:
            step = await made(made_step, len(items))
            step.check()
            sent = begun(self._sends, step.count, None if step.has_delayed else topic)
            step.confirmation = sent
            mode = flush or topic.flush
            step.appended = self._store.append_step(
                step.parts, mode, sent.done, is_send=True, answer=sent.answer
            )
        except CurlewError as error:
            return [with_outcome(error, "not_stored")] * len(items)
        try:
            return list(await results_by(step, deadline))
        except CurlewError as error:
            return [error] * len(items)

    async def _append_delayed(
        self,
        topic: Topic,
        items: Sequence[BatchItem | CurlewError],
        chosen: dict[int, list[int]],
        results: list[SendResult | CurlewError | None],
        flush: FlushMode | None,
    ) -> list[tuple[list[int], Waiting]]:
        """Take those that are for later out of `chosen` and append them where they wait; of a
        large batch in several turns."""
        later, sent = self._take_later(items, chosen)
        pending: list[tuple[list[int], Waiting]] = []
        for first, end in ranges_of([each.message for each in sent], DELAYED_A_TURN):
            indexes = later[first:end]
            if len(sent) > DELAYED_A_TURN:
                await asyncio.sleep(0)
            try:
                waiting = self._delayed.append(topic, sent[first:end], flush)
            except CurlewError as error:
                _fill(results, indexes, with_outcome(error, "not_stored"))
            else:
                pending.append((indexes, waiting))
        return pending

    def _take_later(
        self, items: Sequence[BatchItem | CurlewError], chosen: dict[int, list[int]]
    ) -> tuple[list[int], list[Delayed]]:
        """Take the places of those that are for later out of `chosen`; and what is delayed."""
        later: list[int] = []
        sent: list[Delayed] = []
        for queue_id, indexes in chosen.items():
            for index in indexes:
                item = items[index]
                if isinstance(item, BatchItem) and item.due is not None:
                    due_ms = self._delayed.due_ms(item.due)
                    if due_ms is not None:
                        later.append(index)
                        sent.append(Delayed(item.message, queue_id, due_ms))
        if not later:
            return later, sent
        waits = frozenset(later)
        for queue_id, indexes in list(chosen.items()):
            chosen[queue_id] = [index for index in indexes if index not in waits]
            if not chosen[queue_id]:
                del chosen[queue_id]
        return later, sent


def _failure_before(pending: Sequence[_Part], queue_id: int) -> CurlewError | None:
    """Why the part before in the same queue has failed; None: it has not, or is the first."""
    if not pending or pending[-1].queue_id != queue_id:
        return None
    return pending[-1].confirmation.error


def _fill(
    results: list[SendResult | CurlewError | None], indexes: Sequence[int], error: CurlewError
) -> None:
    for index in indexes:
        results[index] = error


async def _fill_confirmed(
    results: list[SendResult | CurlewError | None],
    topic: str,
    part: _Part,
    deadline: Deadline,
) -> None:
    queue_id, indexes, appended, confirmation = part
    try:
        is_safe = await is_safe_by(deadline, confirmation, len(indexes))
    except CurlewError as error:
        _fill(results, indexes, error)
        return
    await fill_in(results, topic, queue_id, indexes, appended)
    if not is_safe:
        await refuse_unsafe(results, indexes, confirmation)


async def _fill_delayed(
    results: list[SendResult | CurlewError | None],
    indexes: Sequence[int],
    waiting: Waiting,
    deadline: Deadline,
) -> None:
    try:
        for index, result in zip(indexes, await results_by(waiting, deadline), strict=True):
            results[index] = result
    except CurlewError as error:
        _fill(results, indexes, error)
