"""The body of a poll → what the broker is asked. Pure."""

from typing import Final

from app.api.dataplane.polling.shapes import (
    HandBackEntry,
    PollBody,
    PollQueue,
    PollStrategy,
)
from app.api.dataplane.settling import settles_of
from app.api.formats.decoding import BodyDecoder
from app.api.formats.wire import SettleBody
from app.api.http.parameters import Query, agreed, duration_ms_of, wait_s_of
from app.api.naming.request_namespace import stored
from app.broker.polling.poll_values import HandBack, PollCommit, PollRequest, Settles
from app.domain.consumers.membership import (
    Profile,
    QueueName,
    Strategy,
    StrategyName,
    TopicSubscription,
)
from app.domain.errors import BatchTooLarge, InvalidRequest
from app.domain.limits import (
    DEFAULT_POLL_BYTES,
    DEFAULT_POLL_MESSAGES,
    MAX_POLL_INTERVAL_MS_MAX,
    MAX_POLL_INTERVAL_MS_MIN,
    Limits,
)

POLL_PARAMETERS: Final = frozenset({"wait", "force", "replace_subscription", "body"})

poll_decoder: Final = BodyDecoder(PollBody)


class _Names(dict[str, str]):
    """Topics of one request → what they are stored as; each is looked up once."""

    def __missing__(self, name: str) -> str:
        found = self[name] = stored("topic", name)
        return found

    def queue(self, entry: PollQueue) -> QueueName:
        return QueueName(self[entry.topic], entry.queue_id)


def wait_asked(asked: PollBody, query: Query, limits: Limits) -> float | None:
    """How long to wait, by the query or the body; None: neither says."""
    wait_s = query.wait_s(limits.wait_seconds_max)
    if asked.wait is None:
        return wait_s
    asked_s = wait_s_of(asked.wait, limits.wait_seconds_max)
    agreed("wait", asked_s, wait_s or asked_s)
    return asked_s


def request_of(
    asked: PollBody,
    query: Query,
    wait_s: float,
    limits: Limits,
    principal: str | None = None,
) -> PollRequest:
    """The request. Raises `InvalidRequest` with the field that is wrong."""
    count = len(asked.hand_backs) + (0 if asked.settles is None else _count(asked.settles))
    if count > limits.batch_messages_max:
        raise BatchTooLarge(
            f"{count} messages are handed back or settled; at most {limits.batch_messages_max}"
            " are taken",
            fields={"limit_messages": limits.batch_messages_max},
        )
    names = _Names()
    return PollRequest(
        profile=_profile_of(asked, names, principal),
        generation=asked.generation,
        assignment_id=asked.assignment_id,
        wait_s=wait_s,
        max_messages=_bounded(
            "max_messages", asked.max_messages, DEFAULT_POLL_MESSAGES, limits.pull_messages_max
        ),
        max_bytes=_bounded("max_bytes", asked.max_bytes, DEFAULT_POLL_BYTES, limits.pull_bytes_max),
        max_interval_ms=_interval_of(asked.max_poll_interval),
        commits=[
            PollCommit(names.queue(each), each.offset, each.since_generation)
            for each in asked.commits
        ],
        hand_backs=[_hand_back_of(each, names) for each in asked.hand_backs],
        settles=None if asked.settles is None else _settles_of(asked.settles),
        positions={
            QueueName(names[each.topic], each.queue_id): each.offset for each in asked.positions
        },
        paused=frozenset(names.queue(each) for each in asked.paused),
        force=query.flag("force"),
        replace_subscription=query.flag("replace_subscription"),
        principal=principal,
    )


def _profile_of(asked: PollBody, names: _Names, principal: str | None) -> Profile:
    return Profile(
        tuple(
            sorted(
                TopicSubscription(names[each.topic], (each.filter or "").strip())
                for each in asked.subscriptions
            )
        ),
        _strategy_of(asked.strategy, names),
        asked.room,
        tuple(names.queue(each) for each in asked.queues),
        principal,
    )


def _strategy_of(asked: StrategyName | PollStrategy | None, names: _Names) -> Strategy | None:
    if asked is None or isinstance(asked, StrategyName):
        return None if asked is None else Strategy(asked)
    return Strategy(
        asked.name,
        asked.virtual_nodes,
        tuple(sorted(asked.rooms)),
        tuple(sorted((names[topic], tuple(rooms)) for topic, rooms in asked.brokers.items())),
        asked.inner,
    )


def _hand_back_of(entry: HandBackEntry, names: _Names) -> HandBack:
    delay_ms = duration_ms_of("delay", entry.delay, entry.delay_ms, error=InvalidRequest)
    if entry.dead_letter and delay_ms is not None:
        raise InvalidRequest(
            "delay does not go with dead_letter: a dead letter does not come again",
            fields={"parameter": "delay"},
        )
    return HandBack(
        names.queue(entry),
        entry.queue_offset,
        delay_ms,
        entry.reason,
        entry.dead_letter,
    )


def _settles_of(body: SettleBody) -> Settles:
    if body.sends:
        raise InvalidRequest(
            "sends do not go with a poll",
            hint="ack and send in one step with messages:settle",
            fields={"parameter": "settles"},
        )
    nacks, extends, letters = settles_of(body)
    return Settles(body.acks, nacks, extends, letters, body.releases)


def _count(body: SettleBody) -> int:
    handles = len(body.acks) + len(body.extends) + len(body.releases)
    return handles + len(body.nacks) + len(body.dead_letters)


def _interval_of(text: str | None) -> int | None:
    interval_ms = duration_ms_of("max_poll_interval", text, None, error=InvalidRequest)
    low, high = MAX_POLL_INTERVAL_MS_MIN, MAX_POLL_INTERVAL_MS_MAX
    if interval_ms is not None and not low <= interval_ms <= high:
        raise InvalidRequest(
            f"max_poll_interval is {interval_ms} ms; it must be from {low} to {high}",
            fields={"parameter": "max_poll_interval", "min": low, "max": high},
        )
    return interval_ms


def _bounded(name: str, asked: int | None, default: int, high: int) -> int:
    value = min(default, high) if asked is None else asked
    if value > high:
        raise InvalidRequest(
            f"{name} is {value}; it must be from 1 to {high}",
            fields={"parameter": name, "min": 1, "max": high},
        )
    return value
