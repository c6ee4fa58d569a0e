"""The calls of a producer, as `Client` and `AsyncClient` have them: checked here once.

`Client` waits for what a call gives; `AsyncClient` gives it to `await`. The type variables say
which.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypedDict, TypeVar, Unpack

from curlew_client.consuming.calls import ReceiveOptions
from curlew_client.consuming.messages import Received
from curlew_client.errors import CurlewError
from curlew_client.hooks import Hooks, Prepared, Sending
from curlew_client.options import Options
from curlew_client.other_names import CALLS, OPTIONS, hint
from curlew_client.producing.batches import SendFuture
from curlew_client.producing.messages import (
    Message,
    SendRequest,
    Waiting,
    batch_request,
    check_name,
    send_request,
    waiting_of,
)
from curlew_client.results import SendResult
from curlew_client.session import Session
from curlew_client.wire.bodies import Body
from curlew_client.wire.durations import Duration, milliseconds_of, seconds_of

QueueSelector = Callable[[Sequence[int], Message], int]
"""Chooses one of the ids of a topic's queues for a message; RocketMQ's MessageQueueSelector."""

One = TypeVar("One")
Many = TypeVar("Many")
Later = TypeVar("Later")
Nothing = TypeVar("Nothing")

BATCH_MESSAGES_MAX: Final = 10_000


Loop = TypeVar("Loop")
Batch = TypeVar("Batch")


class MessageOptions(TypedDict, total=False):
    """What a message may have beside its body: see `Message`."""

    tag: str | None
    keys: Iterable[str]
    sharding_key: str | None
    queue_id: int | None
    properties: Mapping[str, str] | None
    content_type: str | None
    delay: Duration | None
    deliver_at_ms: int | None
    unique_id: str | None
    flag: int


_NAMES: Final = frozenset(MessageOptions.__annotations__)


Tx = TypeVar("Tx")
AdminOf = TypeVar("AdminOf")


ReplyOf = TypeVar("ReplyOf")
Replied = TypeVar("Replied")


class OtherFace(ABC, Generic[Tx, AdminOf, ReplyOf, Replied]):
    """Transactions, request and reply, and the control plane."""

    def request(
        self,
        topic: str,
        body: Body,
        *,
        wait: Duration = 3.0,
        **message: Unpack[MessageOptions],
    ) -> ReplyOf:
        """Send a request, and wait at most `wait` for the `Reply`; `NoReply` when none comes."""
        wait_ms = milliseconds_of("wait", wait)
        return self._request(check_name("topic", topic), message_of(body, message), wait_ms)

    def reply(
        self, to: "Received[Any] | str", body: Body, **message: Unpack[MessageOptions]
    ) -> Replied:
        """Reply to a request that was received, or to a correlation id: a body, tag, keys and
        properties. The request is acked besides."""
        correlation_id = to if isinstance(to, str) else to.correlation_id
        if not correlation_id:
            raise ValueError(f"{to!r} is no request, and waits for no reply")
        return self._reply(correlation_id, message_of(body, message))

    @abstractmethod
    def _request(self, topic: str, message: Message, wait_ms: int) -> ReplyOf: ...

    @abstractmethod
    def _reply(self, correlation_id: str, message: Message) -> Replied: ...

    def transaction(self, topic: str, *, group: str, check_after: Duration | None = None) -> Tx:
        """A block in which one message is prepared, by `tx.send(body, …)`, and local work is done.

        `group` is the producer group, whose checker decides when no decision comes through;
        `check_after` is how long the local work may take before anybody asks.
        """
        check_name("topic", topic)
        check_name("group", group)
        after_ms = None if check_after is None else milliseconds_of("check_after", check_after)
        return self._transaction(topic, group, after_ms)

    @property
    @abstractmethod
    def admin(self) -> AdminOf:
        """The control plane: topics, groups, offsets, dead letters."""

    @abstractmethod
    def _transaction(self, topic: str, group: str, check_after_ms: int | None) -> Tx: ...


class ConsumerFace(ABC, Generic[Loop, Batch]):
    """The calls of a consumer without a worker, checked here once."""

    def receive(
        self,
        topic: str,
        *,
        group: str,
        filter: str | None = None,
        invisible: Duration = 30.0,
        consume_timeout: Duration = 900.0,
        limit: int | None = None,
        idle: Duration | None = None,
    ) -> Loop:
        """A block (`with`, `async with`) with a loop over the messages of a group.

        The next turn acks the message before, and so does leaving the block well: at its end, by
        `break`, by `return`. An exception hands the message back with its text. What was fetched
        and not begun is released. Whoever calls `message.ack()`, `nack()`, `dead_letter()` or
        `release()` decides about that message himself.

        Endless, unless `limit` messages or `idle` without one end it. `filter` chooses messages;
        `invisible` is the length of a lease, which is extended for up to `consume_timeout`.
        """
        options = ReceiveOptions.of(topic, group, filter, invisible, consume_timeout)
        if limit is not None:
            check_count("limit", limit)
        return self._receive(options, limit, None if idle is None else seconds_of("idle", idle))

    def receive_batch(
        self,
        topic: str,
        *,
        group: str,
        max_messages: int = 16,
        wait: Duration = 0.0,
        filter: str | None = None,
        invisible: Duration = 30.0,
    ) -> Batch:
        """The messages that are there, or the first that come within `wait`.

        Settle each yourself within `invisible`: nothing extends their leases.
        """
        options = ReceiveOptions.of(topic, group, filter, invisible, invisible)
        check_count("max_messages", max_messages)
        return self._receive_batch(options, max_messages, seconds_of("wait", wait))

    @abstractmethod
    def _receive(
        self, options: ReceiveOptions, limit: int | None, idle_s: float | None
    ) -> Loop: ...

    @abstractmethod
    def _receive_batch(
        self, options: ReceiveOptions, max_messages: int, wait_s: float
    ) -> Batch: ...


def check_count(name: str, value: object) -> None:
    """Raise unless it is an int from 1 on."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is an int, not {type(value).__name__}")
    if value < 1:
        raise ValueError(f"{name} is {value}; it must be 1 or more")


class ProducerFace(ABC, Generic[One, Many, Later, Nothing]):
    """A client of one or several nodes of one service. Options: see `Options`."""

    def __init__(
        self,
        url: str | Iterable[str] | None = None,
        *,
        key: str | None = None,
        client_id: str | None = None,
        **options: Any,
    ) -> None:
        self._session = Session(url, key=key, client_id=client_id, options=Options.of(options))
        self._has_hooks = bool(self._session.hooks)

    if not TYPE_CHECKING:  # else every name would be an attribute to a type checker

        def __getattr__(self, name: str) -> Any:
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            known = [each for each in dir(type(self)) if not each.startswith("_")]
            raise AttributeError(f"{text}{hint(name, CALLS, known)}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._session!r})"

    @property
    def session(self) -> Session:
        """For the other parts of this package."""
        return self._session

    @property
    def client_id(self) -> str:
        """Which the node shows in its lists of clients."""
        return self._session.client_id

    @property
    def state(self) -> str:
        """`created`, `running`, `closing` or `closed`."""
        return self._session.state

    # --- sending

    def send(
        self,
        topic: str,
        body: Body,
        *,
        timeout: Duration | None = None,
        queue_selector: QueueSelector | None = None,
        **message: Unpack[MessageOptions],
    ) -> One:
        """Send one message, and wait until it is as safe as the topic promises.

        Tries again within `timeout` (of the client, 10 s), and raises a `CurlewError` whose
        `outcome` says what became of the message. `queue_selector` is given the ids of the queues
        that take messages, and the message, and chooses one; they are known for up to 30 s. The
        other parameters are those of `Message`.
        """
        check_name("topic", topic)
        timeout_s = self._timeout_s(timeout)
        made = message_of(body, message)
        session = self._session
        sending = session.hooks.begin(topic, [made]) if session.hooks else None
        if queue_selector is not None:
            with Prepared(session.hooks, sending):
                check_selector(queue_selector, made)
            return self._send_selected(topic, made, queue_selector, sending, timeout_s)
        with Prepared(session.hooks, sending):
            request = send_request(topic, made, session.options.compress_from)
        request.sending = sending
        return self._send(request, timeout_s)

    def send_batch(
        self,
        topic: str,
        messages: Iterable[Message | Body],
        *,
        queue_id: int | None = None,
        timeout: Duration | None = None,
    ) -> Many:
        """Send many messages of one topic in one request: all are stored, or none.

        They go to one queue, in order, unless they have sharding keys.
        """
        if isinstance(messages, str | bytes | bytearray | dict):
            raise TypeError("messages is a list of bodies or of Message")
        found = [each if isinstance(each, Message) else Message(each) for each in messages]
        if not 1 <= len(found) <= BATCH_MESSAGES_MAX:
            raise ValueError(
                f"messages has {len(found)} messages; a batch has 1 to {BATCH_MESSAGES_MAX}"
            )
        named = {each.queue_id for each in found} - {None}
        if queue_id is not None:
            named.add(queue_id)
        if len(named) > 1:
            raise ValueError("the messages name several queues; send one batch for each")
        check_name("topic", topic)
        timeout_s = self._timeout_s(timeout)
        sending = self._session.hooks.begin(topic, found)
        with Prepared(self._session.hooks, sending):
            namespace = self._session.options.namespace
            request = batch_request(topic, found, next(iter(named), None), namespace)
        request.sending = sending
        return self._send_batch(request, timeout_s)

    def send_async(
        self,
        topic: str,
        body: Body,
        *,
        callback: "Callable[[SendResult | None, CurlewError | None], object] | None" = None,
        queue_selector: QueueSelector | None = None,
        **message: Unpack[MessageOptions],
    ) -> Later:
        """Send without waiting for the result: messages go together in batches.

        Gives a `SendFuture`. Waits for room when the client holds `under_way_messages` or
        `under_way_bytes` already. `callback(result, error)` runs in the client's own thread, and
        must not block it. `queue_selector` is that of `send`.
        """
        if type(topic) is not str or not topic:  # a call is dear here
            check_name("topic", topic)
        if callback is not None and not callable(callback):
            raise TypeError("callback is a function of a result and an error")
        if not message and queue_selector is None and not self._has_hooks:
            waiting = body if type(body) is bytes else waiting_of(body)
            return self._send_later(topic, waiting, callback, None, None)
        made = message_of(body, message)
        hooks = self._session.hooks
        sending = hooks.begin(topic, [made])
        if sending is not None:
            callback = _heard(hooks, sending, callback)
        if queue_selector is not None:
            with Prepared(hooks, sending):
                check_selector(queue_selector, made)
        return self._send_later(topic, made, callback, queue_selector, sending)

    def send_oneway(self, topic: str, body: Body, **message: Unpack[MessageOptions]) -> Nothing:
        """Send and forget: nobody learns whether it was stored."""
        check_name("topic", topic)
        made = message_of(body, message)
        return self._send_oneway(topic, made, self._session.hooks.begin(topic, [made]))

    def _timeout_s(self, timeout: Duration | None) -> float:
        return self._session.timeout_s if timeout is None else seconds_of("timeout", timeout)

    @abstractmethod
    def _send(self, request: SendRequest, timeout_s: float) -> One: ...

    @abstractmethod
    def _send_selected(
        self,
        topic: str,
        message: Message,
        selector: QueueSelector,
        sending: Sending | None,
        timeout_s: float,
    ) -> One: ...

    @abstractmethod
    def _send_batch(self, request: SendRequest, timeout_s: float) -> Many: ...

    @abstractmethod
    def _send_later(
        self,
        topic: str,
        message: Waiting,
        callback: "Callable[[SendResult | None, CurlewError | None], object] | None",
        selector: QueueSelector | None,
        sending: Sending | None,
    ) -> Later: ...

    @abstractmethod
    def _send_oneway(self, topic: str, message: Message, sending: Sending | None) -> Nothing: ...


def message_of(body: Body, options: MessageOptions) -> Message:
    """The message, or a `TypeError` that names the option which there is not."""
    if options and not options.keys() <= _NAMES:
        name = next(iter(options.keys() - _NAMES))
        raise TypeError(f"a message has no {name!r}{hint(name, OPTIONS, _NAMES)}")
    return Message(body, **options)


def check_selector(selector: object, message: Message) -> None:
    """Raise unless a queue can be chosen for the message."""
    if not callable(selector):
        raise TypeError("queue_selector is a function of queue ids and a message")
    if message.queue_id is not None or message.sharding_key is not None:
        raise ValueError("give queue_selector, queue_id or sharding_key: each chooses the queue")


def select_queue(selector: QueueSelector, queues: Sequence[int], message: Message) -> None:
    """Let the message go to the queue that is chosen."""
    chosen = selector(queues, message)
    if chosen not in queues:
        raise ValueError(f"queue_selector chose {chosen!r}, which is none of {list(queues)}")
    message.queue_id = chosen


def _heard(
    hooks: Hooks,
    sending: Sending,
    callback: "Callable[[SendResult | None, CurlewError | None], object] | None",
) -> "Callable[[SendResult | None, CurlewError | None], object]":
    """The callback, after the hooks have heard the result."""

    def tell(result: SendResult | None, error: CurlewError | None) -> None:
        sending.results = None if result is None else [result]
        sending.error = error
        hooks.over(sending)
        if callback is not None:
            callback(result, error)

    return tell


def called_back(
    future: SendFuture,
    callback: "Callable[[SendResult | None, CurlewError | None], object] | None",
) -> SendFuture:
    """The future, which calls back when it is done."""
    if callback is not None:

        def tell(done: SendFuture) -> None:
            error = done.exception()
            callback(None if error else done.result(), error)

        future.add_done_callback(tell)
    return future
