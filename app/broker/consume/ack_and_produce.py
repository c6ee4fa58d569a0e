"""Acks and sends as one step: what a consumer read is done, and what it made of it is stored.

Consume, transform, produce: the entry of the acks and the messages are one step of the log, so a
crash leaves both or neither, and no input is lost or worked on twice as far as the log knows. It is
strict: with one handle that is not live or one message that is not valid, nothing is done. A handle
works here once, also within the time of its lease: a repeated request would send its messages
again, so it is refused. Event loop only.
"""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from app.broker.consume.settler import Acks, Settler, Taken, settled_by, tell_hooks
from app.broker.context import Context
from app.broker.delays.delayed_sends import DelayedSends
from app.broker.groups.groups import Groups
from app.broker.journal.append_future import with_outcome
from app.broker.leasing.subscriptions import Subscription
from app.broker.produce.send_steps import Chosen, SendStep, step_of
from app.broker.produce.sender import Sender
from app.broker.results import AckedAndSent, Send, SettleResult
from app.broker.topic_lookup import find_topic
from app.domain.errors import CurlewError, InvalidRequest, NotLeader, OtherShard
from app.domain.positions import FlushMode


class AckAndProduce:
    """One per broker."""

    def __init__(
        self,
        context: Context,
        settler: Settler,
        sender: Sender,
        delayed: DelayedSends,
        groups: Groups,
        note_settled: Callable[[Sequence[SettleResult]], None],
    ) -> None:
        self._metadata = context.metadata
        self._check_open = context.gate.check_for_sends
        self._note_settled = note_settled
        self._hooks = context.hooks
        self._store = context.store
        self._clock = context.clock
        self._settler = settler
        self._sender = sender
        self._delayed = delayed
        self._groups = groups
        self._lease_ids = groups.lease_ids
        self._offset_cache = groups.offset_cache
        self._consumer_journal = groups.consumer_journal

    async def ack_and_send(
        self, topic: str, group: str, acks: Sequence[str], sends: Sequence[Send]
    ) -> AckedAndSent:
        """Ack handles and store messages as one step: all of it or, with any bad entry, nothing.

        Returns when it is as safe as the strictest topic asks. Raises `InvalidRequest` without
        acks or sends, `BatchTooLarge`, and what a send raises; each carries `outcome`.
        """
        self._check_open()
        flush = find_topic(self._metadata, topic).flush
        self._settler.find_group(group)
        subscription = self._groups.find_or_stand_in(group, topic)
        done = await self._carry_out(subscription, flush, acks, sends)
        if done.refused is None:
            self._note_settled(done.acks)
            tell_hooks(self._hooks, topic, group, done.acks)
        return done

    async def _carry_out(
        self,
        subscription: Subscription,
        flush: FlushMode,
        acks: Sequence[str],
        sends: Sequence[Send],
    ) -> AckedAndSent:
        try:
            if not acks:
                raise InvalidRequest(
                    "there is no handle to ack",
                    hint="sends go with acks; to send only, POST /v1/topics/{topic}/messages:batch",
                )
            self._sender.checks.check_batch([send.item for send in sends])
            looked = self._look_at(subscription, acks)
            if any(result.error is not None for result in looked.results):
                return _refused(looked, [None] * len(sends))  # before topics are made
            chosen, errors = await self._choose(sends)
            step = await step_of(self._delayed, chosen)
            looked = self._look_at(subscription, acks)
            refused = any(result.error is not None for result in looked.results)
            if refused or any(error is not None for error in errors):
                return _refused(looked, errors)
            self._append(subscription, flush, looked, chosen, step)
        except CurlewError as error:
            raise with_outcome(error, "not_stored") from error.__cause__
        self._groups.tell_of_room(subscription.in_flight, subscription.group)
        return AckedAndSent(looked.results, await step.results(), None)

    def _look_at(self, subscription: Subscription, acks: Sequence[str]) -> Acks:
        now_s = subscription.last_used_s = self._clock.monotonic_s()
        return self._settler.look_at(subscription, acks, now_s, is_repeatable=False)

    async def _choose(self, sends: Sequence[Send]) -> tuple[list[Chosen], list[CurlewError | None]]:
        """Topic and queue of each message, or why there is none."""
        chosen: list[Chosen] = []
        errors: list[CurlewError | None] = []
        for topic_name, item in sends:
            error: CurlewError | None = None
            try:
                if isinstance(item, CurlewError):
                    raise item
                topic, queue_id = await self._sender.place(topic_name, item.message, item.queue_id)
                error = self._sender.checks.check_item(topic, item)
                if error is None:
                    due_ms = self._delayed.due_ms(item.due)
                    chosen.append(Chosen(topic, queue_id, item, due_ms))
            except NotLeader as other:
                error = OtherShard(f"a message for topic {topic_name!r}", other.shard)
            except CurlewError as bad:
                error = with_outcome(bad, "not_stored")
            errors.append(error)
        return chosen, errors

    def _append(
        self,
        subscription: Subscription,
        flush: FlushMode,
        looked: Acks,
        chosen: Sequence[Chosen],
        step: SendStep,
    ) -> None:
        """The entry of the acks and all messages as one step, and the acks, in this turn."""
        step.check()
        runs = looked.runs()
        entry = self._consumer_journal.part(settled_by(subscription, runs))
        modes = {flush, *(each.topic.flush for each in chosen)}
        strictest = FlushMode.SYNC if FlushMode.SYNC in modes else FlushMode.ASYNC
        now_s = self._clock.monotonic_s()
        taken = Taken(subscription, self._offset_cache, self._consumer_journal, self._lease_ids)

        def done(error: CurlewError | None) -> None:
            taken.settled(error)
            step.confirmation.done(error)

        appended = self._store.append_step((entry, *step.parts), strictest, done, is_send=True)
        self._settler.take(subscription, looked, runs, now_s, taken)
        step.appended = appended[1:]


def _refused(looked: Acks, errors: Sequence[CurlewError | None]) -> AckedAndSent:
    """Nothing was done. Each bad entry says why, the others which one it was."""
    faults = [
        *((f"/acks/{n}", result.error) for n, result in enumerate(looked.results)),
        *((f"/sends/{n}", error) for n, error in enumerate(errors)),
    ]
    where, leading = next((where, error) for where, error in faults if error is not None)
    other = InvalidRequest(
        f"not done, because of {where}: acks and sends are one step, all or nothing",
        hint="mend or leave out that entry, and repeat the request",
        outcome="not_stored",
    )
    return AckedAndSent(
        [replace(result, error=result.error or other) for result in looked.results],
        [error or other for error in errors],
        with_outcome(leading, "not_stored"),
    )
