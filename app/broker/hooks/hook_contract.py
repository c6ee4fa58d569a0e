"""What plug-ins of a node are told, and what they may say: the contract of hooks. Pure.

A hook is an object that an entry point of the group `curlew.hooks` makes when it is called without
arguments. It has one or more of the methods of the protocols below, which need not be imported: the
names count. Each method is called once for many messages, on a thread of the hook, never on the
event loop. What a hook raises, or how long it takes, harms no one but as it declares.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, runtime_checkable

from app.domain.errors import CurlewError, TryAgain
from app.domain.message import Message

ENTRY_POINTS: Final = "curlew.hooks"
DEFAULT_BUDGET_MS: Final = 100

SendKind = Literal["message", "batch", "frame", "transaction", "request", "step"]
"""How messages come: alone, in a batch, in a frame, as a half message, as a request that waits for
its reply, or in one step with acks."""

Failing = Literal["open", "closed"]
"""What a check that raises, or is too late, means: the send is taken, or it is refused."""


class ForbiddenByHook(CurlewError):
    """A plug-in of the node refuses the send."""

    code = "FORBIDDEN_BY_HOOK"
    title = "The node does not take this send"


class HookFailed(TryAgain):
    """A plug-in without which nothing is sent has failed, or was too late."""

    code = "HOOK_FAILED"
    title = "A plug-in of the node could not decide about the send"


class SendRequest:
    """A send that has not been taken yet. Messages are made when they are asked for."""

    __slots__ = ("_made", "_make", "address", "client_id", "kind", "topic")

    def __init__(
        self,
        kind: SendKind,
        topic: str,
        make: Callable[[], Sequence[Message]],
        client_id: str | None = None,
        address: str | None = None,
    ) -> None:
        self.kind: SendKind = kind
        self.topic = topic
        """As stored: of a namespace `namespace%topic`."""
        self.client_id = client_id
        self.address = address
        self._make = make
        self._made: Sequence[Message] | None = None

    @property
    def messages(self) -> Sequence[Message]:
        """What is to be sent. Those of a frame are decoded now: tens of microseconds each."""
        if self._made is None:
            self._made = self._make()
        return self._made


@dataclass(frozen=True, slots=True)
class SentMessages:
    """Messages of one request that were stored next to each other in a queue."""

    topic: str
    queue_id: int
    first_offset: int
    """-1: they are delivered later, and have no place yet."""
    count: int
    store_time_ms: int
    client_id: str | None
    address: str | None


@dataclass(frozen=True, slots=True)
class SettledHandle:
    """What a request asked for one delivery, and what came of it."""

    receipt_handle: str
    action: str
    """ack, nack, extend, dead_letter or release."""
    error: str | None
    """The error's code; None: it was done."""


class SettledMessages:
    """One request that settled deliveries of a group. Handles are made when they are asked for."""

    __slots__ = ("_make", "count", "group", "topic")

    def __init__(
        self, topic: str, group: str, count: int, make: Callable[[], Sequence[SettledHandle]]
    ) -> None:
        self.topic = topic
        self.group = group
        self.count = count
        """Handles of the request."""
        self._make = make

    @property
    def handles(self) -> Sequence[SettledHandle]:
        """One for each that was asked for."""
        return self._make()


@runtime_checkable
class ChecksSends(Protocol):
    """Asked before messages are taken. RocketMQ's CheckForbiddenHook."""

    fails: Failing
    """A check says what its failure means; there is no default."""

    def check_send(self, request: SendRequest) -> str | None:
        """Why the request is refused, for its sender to read; None: it may go on."""
        ...


@runtime_checkable
class HearsSends(Protocol):
    """Told what was stored, after its sender was answered. RocketMQ's SendMessageHook."""

    def after_send(self, sends: Sequence[SentMessages]) -> None:
        """Called with all that came since the last call."""
        ...


@runtime_checkable
class HearsSettles(Protocol):
    """Told what was settled, after its consumer was answered. RocketMQ's ConsumeMessageHook."""

    def on_settle(self, settles: Sequence[SettledMessages]) -> None:
        """Called with all that came since the last call."""
        ...


Hook = ChecksSends | HearsSends | HearsSettles
