"""Hooks: what a program wants to happen around each send and each handler.

RocketMQ has SendMessageHook, CheckForbiddenHook and ConsumeMessageHook for it. Give hooks to a
client or worker as `hooks=[…]`. They run in the order of that list before, and in the reverse order
after; in the thread, or on the event loop, of the call that they are about, so they must not block.
"""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from curlew_client.consuming.messages import Received
    from curlew_client.producing.messages import Message
    from curlew_client.results import SendResult


class Sending:
    """One send, from before it until its result is there.

    `messages` may be changed before the send, for instance their `properties`. `results`, one for
    each message, or `error` is set afterwards; neither, for a one-way send. `notes` is free for
    hooks, which put there what they need afterwards.
    """

    __slots__ = ("error", "messages", "notes", "results", "topic")

    def __init__(self, topic: str, messages: "list[Message]") -> None:
        self.topic = topic
        self.messages = messages
        self.results: Sequence[SendResult] | None = None
        self.error: BaseException | None = None
        self.notes: dict[Any, Any] = {}


class Handling:
    """One call of a handler: of one message, or of a batch.

    `returned`, or `error` that the handler raised, is set afterwards. `notes` is free for hooks.
    """

    __slots__ = ("error", "group", "messages", "notes", "returned")

    def __init__(self, group: str, messages: "list[Received[Any]]") -> None:
        self.group = group
        self.messages = messages
        self.returned: object = None
        self.error: BaseException | None = None
        self.notes: dict[Any, Any] = {}


class Hook:
    """Does nothing; override what is wanted."""

    def before_send(self, sending: Sending) -> None:
        """Before the messages are encoded. What it raises, the caller of the send gets: nothing is
        sent."""

    def after_send(self, sending: Sending) -> None:
        """The result or the error is there. What it raises is logged, and changes nothing."""

    def before_handle(self, handling: Handling) -> None:
        """Before the handler. What it raises counts as raised by the handler, which is not
        called."""

    def after_handle(self, handling: Handling) -> None:
        """After the handler, before its messages are settled. What it raises is logged."""


class Hooks:
    """The hooks of a client."""

    __slots__ = ("_hooks",)

    def __init__(self, hooks: Sequence[Hook]) -> None:
        self._hooks = tuple(hooks)

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def begin(self, topic: str, messages: "list[Message]") -> Sending | None:
        """Before a send; None: there are no hooks. Raises what a hook raises."""
        if not self._hooks:
            return None
        sending = Sending(topic, messages)
        self._begin("send", sending)
        return sending

    def over(self, sending: Sending) -> None:
        """After a send."""
        self._after(len(self._hooks), "send", sending)

    def around(
        self, function: Callable[[Any], Any], group: str, *, is_async: bool
    ) -> Callable[[Any], Any]:
        """The handler with the hooks around it."""
        if not self._hooks:
            return function
        if is_async:

            async def handle_async(work: Any) -> object:
                with _Handled(self, group, work) as handling:
                    handling.returned = await function(work)
                return handling.returned

            return handle_async

        def handle(work: Any) -> object:
            with _Handled(self, group, work) as handling:
                handling.returned = function(work)
            return handling.returned

        return handle

    def begin_handling(self, handling: Handling) -> None:
        """Before a handler. Raises what a hook raises."""
        self._begin("handle", handling)

    def handled(self, handling: Handling) -> None:
        """After a handler."""
        self._after(len(self._hooks), "handle", handling)

    def _begin(self, what: str, subject: Sending | Handling) -> None:
        """Tell the hooks before; those that were told hear of the error when one of them raises."""
        begun = 0
        try:
            for hook in self._hooks:
                getattr(hook, f"before_{what}")(subject)
                begun += 1
        except BaseException as error:
            subject.error = error
            self._after(begun, what, subject)
            raise

    def _after(self, count: int, what: str, subject: Sending | Handling) -> None:
        for hook in reversed(self._hooks[:count]):
            try:
                getattr(hook, f"after_{what}")(subject)
            except Exception:
                import logging  # a command has no hooks

                log = logging.getLogger("curlew_client")
                log.exception("after_%s of the hook %r failed", what, hook)


class _Handled:
    """The block in which a handler runs."""

    def __init__(self, hooks: Hooks, group: str, work: Any) -> None:
        self._hooks = hooks
        self._handling = Handling(group, work if isinstance(work, list) else [work])

    def __enter__(self) -> Handling:
        self._hooks.begin_handling(self._handling)
        return self._handling

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._handling.error = error
        self._hooks.handled(self._handling)


class Reported:
    """The block in which a send waits for its answer: hooks hear what came of it."""

    __slots__ = ("_hooks", "_sending")

    def __init__(self, hooks: Hooks, sending: Sending | None) -> None:
        self._hooks = hooks
        self._sending = sending

    def __enter__(self) -> Self:
        return self

    def gave(self, results: "Sequence[SendResult]") -> None:
        """The messages are stored."""
        if self._sending is not None:
            self._sending.results = results

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._sending is not None:
            self._sending.error = error
            self._hooks.over(self._sending)


class Prepared(Reported):
    """The block in which a send is made ready: hooks hear of what ends it there. Of what goes on
    they hear later."""

    __slots__ = ()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            super().__exit__(kind, error, traceback)
