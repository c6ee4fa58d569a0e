"""The hooks of a node: which are on, and what becomes of their calls.

A check is asked on a thread and waited for as long as its budget. One that raises, is too late, or
has no thread left, means what it declares: the send is taken ("open"), or it is refused ("closed").
What was sent and settled is gathered and told in batches, one call of a hook at a time; when a hook
is too slow for it, the oldest is kept and the newest left out. Everything is counted, and the first
failure in a minute is logged. Without hooks nothing of this runs. Event loop only.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Final, Generic, NamedTuple, TypeVar

from app.broker.hooks.hook_contract import (
    DEFAULT_BUDGET_MS,
    ChecksSends,
    ForbiddenByHook,
    HearsSends,
    HearsSettles,
    Hook,
    HookFailed,
    SendRequest,
    SentMessages,
    SettledMessages,
)
from app.broker.hooks.hook_threads import HookRaised, HookThreads, NoThread
from app.domain.limits import (
    HOOK_BUDGET_MS_MAX,
    HOOK_EVENTS_PENDING_MAX,
    HOOK_REASON_CHARS_MAX,
    HOOK_THREADS_MAX,
)

_LOG: Final = logging.getLogger(__name__)
_LOG_EVERY_S: Final = 60.0
_TOLD_AT_ONCE: Final = 1_000

_Event = TypeVar("_Event", SentMessages, SettledMessages)


class UnusableHook(Exception):
    """The hook is not as the contract says; the text tells what to mend."""


class NamedHook(NamedTuple):
    """A hook that is on, under the name of its entry point."""

    name: str
    hook: Hook


class _Calls:
    """The calls of one hook."""

    def __init__(self, named: NamedHook) -> None:
        self.name, hook = named
        budget_ms = getattr(hook, "budget_ms", DEFAULT_BUDGET_MS)
        if not isinstance(budget_ms, int) or not 1 <= budget_ms <= HOOK_BUDGET_MS_MAX:
            raise UnusableHook(
                f"hook {self.name!r}: budget_ms is {budget_ms!r}; it must be a whole number from 1"
                f" to {HOOK_BUDGET_MS_MAX}"
            )
        self.budget_s = budget_ms / 1_000
        self.threads = HookThreads(self.name, HOOK_THREADS_MAX)
        self.counts: Counter[tuple[str, str]] = Counter()
        """(point, result) → calls."""
        self.dropped = 0
        self._logs_from_s = 0.0

    async def run(self, point: str, function: Callable[[], object]) -> tuple[str, object]:
        """Result (ok, refused, raised, late or busy), and why it is not ok."""
        value: object
        try:
            result, value = "ok", await self.threads.call(function, self.budget_s)
        except TimeoutError:
            result, value = "late", f"it took longer than {self.budget_s * 1_000:.0f} ms"
        except NoThread:
            result, value = "busy", f"all its {HOOK_THREADS_MAX} threads are in calls"
        except HookRaised as error:
            result, value = "raised", str(error)
        if point == "check_send" and result == "ok" and value is not None:
            result = "refused"
            if not isinstance(value, str):
                result, value = (
                    "raised",
                    f"it returned {type(value).__name__}, no text",
                )
        self.counts[point, result] += 1
        if result not in {"ok", "refused"}:
            self.complain(point, str(value))
        return result, value

    def complain(self, point: str, text: str) -> None:
        """Log it, once a minute."""
        now_s = monotonic()
        if now_s >= self._logs_from_s:
            self._logs_from_s = now_s + _LOG_EVERY_S
            _LOG.warning("hook %s failed in %s: %s", self.name, point, text)


class _Listener(Generic[_Event]):
    """Tells one hook what has happened, in batches."""

    def __init__(
        self, calls: _Calls, point: str, tell: Callable[[Sequence[_Event]], object]
    ) -> None:
        self._calls = calls
        self._point = point
        self._tell: Callable[[Sequence[_Event]], object] = tell
        self._events: list[_Event] = []
        self._task: asyncio.Task[None] | None = None

    def hear(self, events: Sequence[_Event]) -> None:
        room = HOOK_EVENTS_PENDING_MAX - len(self._events)
        self._calls.dropped += max(len(events) - room, 0)
        self._events += events[: max(room, 0)]
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._tell_all())

    async def _tell_all(self) -> None:
        try:
            while self._events:
                told, self._events = self._events[:_TOLD_AT_ONCE], self._events[_TOLD_AT_ONCE:]
                result, _ = await self._calls.run(self._point, partial(_told, self._tell, told))
                if result == "busy":
                    self._calls.dropped += len(told)
                if result in {"late", "busy"}:  # one at a time
                    await self._calls.threads.until_idle()
        finally:
            self._task = None

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()


def _told(tell: Callable[[Sequence[_Event]], object], events: Sequence[_Event]) -> None:
    tell(events)


class Hooks:
    """One per broker; most have none. Made from hooks that `check_hook` found usable."""

    def __init__(self, named: Sequence[NamedHook] = ()) -> None:
        self.calls: list[_Calls] = []
        self._checks: list[tuple[_Calls, ChecksSends]] = []
        self._sends: list[_Listener[SentMessages]] = []
        self._settles: list[_Listener[SettledMessages]] = []
        for each in named:
            calls, hook = _Calls(each), each.hook
            self.calls.append(calls)
            if isinstance(hook, ChecksSends):
                if hook.fails not in {"open", "closed"}:
                    raise UnusableHook(f"hook {each.name!r}: fails must be 'open' or 'closed'")
                self._checks.append((calls, hook))
            elif hasattr(hook, "check_send"):
                raise UnusableHook(
                    f"hook {each.name!r} has check_send and does not say what its failure means:"
                    " give it fails = 'open' or fails = 'closed'"
                )
            if isinstance(hook, HearsSends):
                self._sends.append(_Listener(calls, "after_send", hook.after_send))
            if isinstance(hook, HearsSettles):
                self._settles.append(_Listener(calls, "on_settle", hook.on_settle))
            if not any(hasattr(hook, name) for name in ("check_send", "after_send", "on_settle")):
                raise UnusableHook(
                    f"hook {each.name!r} has none of check_send, after_send and on_settle"
                )
        self.is_on = bool(self._checks or self._sends)
        """Whether any hook has to do with sends."""
        self.check_sends = bool(self._checks)
        """Whether any hook is asked about sends."""
        self.hear_sends = bool(self._sends)
        """Whether any is told of them; `hear_settles`: of what was settled."""
        self.hear_settles = bool(self._settles)

    async def check_send(self, request: SendRequest) -> None:
        """Ask all checks, in their order. Raises `ForbiddenByHook` or `HookFailed`, both
        "not_stored"."""
        for calls, hook in self._checks:
            result, value = await calls.run("check_send", partial(hook.check_send, request))
            if result == "ok":
                continue
            if result == "refused":
                raise ForbiddenByHook(
                    f"hook {calls.name!r} refuses this send: {str(value)[:HOOK_REASON_CHARS_MAX]}",
                    hint="mend what it says, or ask who runs this node",
                    fields={"hook": calls.name},
                    outcome="not_stored",
                )
            if hook.fails == "closed":
                raise HookFailed(
                    f"hook {calls.name!r} could not decide about this send: {value}",
                    hint="send again later; the operator finds the fault in the node's log",
                    fields={"hook": calls.name},
                    outcome="not_stored",
                    retry_after_s=1,
                )

    def sent(self, sends: Sequence[SentMessages]) -> None:
        """Tell of messages that were stored."""
        for listener in self._sends:
            listener.hear(sends)

    def settled(self, settled: SettledMessages) -> None:
        """Tell of deliveries that were settled."""
        for listener in self._settles:
            listener.hear((settled,))

    def close(self) -> None:
        """Tell no more."""
        for heard_sends in self._sends:
            heard_sends.close()
        for heard_settles in self._settles:
            heard_settles.close()
        for calls in self.calls:
            calls.threads.close()
