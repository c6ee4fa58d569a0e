"""The hooks of a node: which are on, and what becomes of their calls.

A check is asked on a thread and waited for as long as its budget. One that raises, is too late, or
has no thread left, means what it declares: the send is taken ("open"), or it is refused ("closed").
What was sent and settled is gathered and told in batches, one call of a hook at a time; when a hook
is too slow for it, the oldest is kept and the newest left out. Checks and what is told have threads
of their own: neither waits for the other. Everything is counted, and the first failure in a minute
is logged. Whatever runs a hook's code, the texts of its errors too, is done on those threads.
Without hooks nothing of this runs. Event loop only.
"""

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Final, Generic, NamedTuple, TypeVar, cast

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
from app.broker.hooks.hook_threads import HookRaised, HookThreads, NoThread, one_line
from app.domain.limits import (
    HOOK_BUDGET_MS_MAX,
    HOOK_EVENTS_PENDING_MAX,
    HOOK_HANDLES_PENDING_MAX,
    HOOK_THREADS_MAX,
)

_LOG: Final = logging.getLogger(__name__)
_LOG_EVERY_S: Final = 60.0
_TOLD_AT_ONCE: Final = 1_000
_POINTS: Final = ("check_send", "after_send", "on_settle")

_Event = TypeVar("_Event", SentMessages, SettledMessages)


class UnusableHook(Exception):
    """The hook is not as the contract says; the text tells what to mend."""


class NamedHook(NamedTuple):
    """A hook that is on, under the name of its entry point."""

    name: str
    hook: Hook


class _NoText(NamedTuple):
    """A check returned this instead of a text."""

    kind: str


class _Outcome(NamedTuple):
    """What became of a call."""

    result: str
    """ok, refused, raised, late or busy."""
    why: str = ""
    """For the client: why it is not ok."""


class _Calls:
    """The calls of one hook."""

    def __init__(self, named: NamedHook) -> None:
        self.name, hook = named
        budget_ms = getattr(hook, "budget_ms", DEFAULT_BUDGET_MS)
        if type(budget_ms) is not int or not 1 <= budget_ms <= HOOK_BUDGET_MS_MAX:
            raise UnusableHook(
                f"hook {self.name!r}: budget_ms is {budget_ms!r}; it must be a whole number from 1"
                f" to {HOOK_BUDGET_MS_MAX}"
            )
        self.budget_s = budget_ms / 1_000
        self.counts: Counter[tuple[str, str]] = Counter()
        """(point, result) → calls."""
        self.dropped = 0
        self._logs_from_s = 0.0

    async def run(
        self, point: str, threads: HookThreads, function: Callable[[], str | _NoText | None]
    ) -> _Outcome:
        """Call it on a thread. What it returns is why it refuses."""
        said = None
        try:
            value = await threads.call(function, self.budget_s)
        except TimeoutError:
            outcome = _Outcome("late", f"it took longer than {self.budget_s * 1_000:.0f} ms")
        except NoThread as error:
            outcome = _Outcome("busy", str(error))
        except HookRaised as error:
            outcome = _Outcome("raised", f"it raised {error.kind}")
            said = str(error)  # for the log only
        else:
            if value is None:
                outcome = _Outcome("ok")
            elif isinstance(value, _NoText):
                outcome = _Outcome("raised", f"it returned {value.kind}, no text")
            else:
                outcome = _Outcome("refused", value)
        self.counts[point, outcome.result] += 1
        if outcome.result not in {"ok", "refused"}:
            self.complain(point, said or outcome.why)
        return outcome

    def complain(self, point: str, text: str) -> None:
        """Log it, once a minute."""
        now_s = monotonic()
        if now_s >= self._logs_from_s:
            self._logs_from_s = now_s + _LOG_EVERY_S
            _LOG.warning("hook %s failed in %s: %s", self.name, point, text)


def _asked(check: Callable[[SendRequest], object], request: SendRequest) -> str | _NoText | None:
    """What a check says. On a thread, as a text may be of a class of the hook's."""
    value = check(request)
    if value is None:
        return None
    return one_line(value) if isinstance(value, str) else _NoText(type(value).__name__)


class _Check(NamedTuple):
    """A hook that is asked."""

    calls: _Calls
    threads: HookThreads
    ask: Callable[[SendRequest], object]
    is_closed: bool
    """What it cannot decide is refused."""


class _Listener(Generic[_Event]):
    """Tells one hook what has happened, in batches, one call at a time."""

    def __init__(
        self,
        calls: _Calls,
        point: str,
        tell: Callable[[Sequence[_Event]], object],
        handles_of: Callable[[_Event], int],
    ) -> None:
        self._calls = calls
        self._point = point
        self._tell: Callable[[Sequence[_Event]], object] = tell
        self._handles_of: Callable[[_Event], int] = handles_of
        self._threads = HookThreads(calls.name, 1)
        self._events: list[_Event] = []
        self._handles = 0
        """Of all that wait."""
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def hear(self, events: Sequence[_Event]) -> None:
        if self._is_closed or self._handles >= HOOK_HANDLES_PENDING_MAX:
            room = 0
        else:
            room = max(HOOK_EVENTS_PENDING_MAX - len(self._events), 0)
        self._calls.dropped += max(len(events) - room, 0)
        heard = events[:room]
        self._events += heard
        self._handles += sum(map(self._handles_of, heard))
        if self._task is None and heard:
            self._task = asyncio.get_running_loop().create_task(self._tell_all())

    async def _tell_all(self) -> None:
        try:
            while self._events:
                told, self._events = self._events[:_TOLD_AT_ONCE], self._events[_TOLD_AT_ONCE:]
                self._handles -= sum(map(self._handles_of, told))
                work = partial(_told, self._tell, told)
                outcome = await self._calls.run(self._point, self._threads, work)
                if outcome.result == "busy":
                    self._calls.dropped += len(told)
                if outcome.result == "late":
                    await self._threads.until_idle()
        finally:
            self._task = None

    def close(self) -> None:
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
        self._threads.close()


def _told(tell: Callable[[Sequence[_Event]], object], events: Sequence[_Event]) -> None:
    tell(events)


def _no_handles(_: SentMessages) -> int:
    return 0


def _handles_of(settled: SettledMessages) -> int:
    return settled.count


class Hooks:
    """One per broker; most have none. Raises `UnusableHook` for one that is not as the contract
    says."""

    def __init__(self, named: Sequence[NamedHook] = ()) -> None:
        self.calls: list[_Calls] = []
        self._checks: list[_Check] = []
        self._sends: list[_Listener[SentMessages]] = []
        self._settles: list[_Listener[SettledMessages]] = []
        for each in named:
            calls, hook = _Calls(each), each.hook
            self.calls.append(calls)
            points = _points_of(each)
            if "check_send" in points:
                check = cast("ChecksSends", hook)
                threads = HookThreads(calls.name, HOOK_THREADS_MAX)
                is_closed = check.fails == "closed"
                self._checks.append(_Check(calls, threads, check.check_send, is_closed))
            if "after_send" in points:
                tell_sent = cast("HearsSends", hook).after_send
                self._sends.append(_Listener(calls, "after_send", tell_sent, _no_handles))
            if "on_settle" in points:
                tell_settled = cast("HearsSettles", hook).on_settle
                self._settles.append(_Listener(calls, "on_settle", tell_settled, _handles_of))
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
        for calls, threads, ask, is_closed in self._checks:
            result, why = await calls.run("check_send", threads, partial(_asked, ask, request))
            if result == "ok":
                continue
            if result == "refused":
                raise ForbiddenByHook(
                    f"hook {calls.name!r} refuses this send: {why}",
                    hint="mend what it says, or ask who runs this node",
                    fields={"hook": calls.name},
                    outcome="not_stored",
                )
            if is_closed:
                raise HookFailed(
                    f"hook {calls.name!r} could not decide about this send: {why}",
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
        for check in self._checks:
            check.threads.close()


def _points_of(named: NamedHook) -> list[str]:
    """The methods that a hook has. Raises `UnusableHook` where they cannot be called as they are to
    be."""
    name, hook = named
    points = [point for point in _POINTS if hasattr(hook, point)]
    if not points:
        raise UnusableHook(f"hook {name!r} has none of check_send, after_send and on_settle")
    for point in points:
        method = getattr(hook, point)
        if not callable(method):
            raise UnusableHook(f"hook {name!r}: {point} is no method")
        if inspect.iscoroutinefunction(method):
            raise UnusableHook(
                f"hook {name!r}: {point} is a coroutine, which nobody awaits: hooks are called on"
                " threads; write it without async"
            )
    if "check_send" not in points:
        return points
    fails = getattr(hook, "fails", None)
    if fails is None:
        raise UnusableHook(
            f"hook {name!r} has check_send and does not say what its failure means:"
            " give it fails = 'open' or fails = 'closed'"
        )
    if fails not in ("open", "closed"):
        raise UnusableHook(f"hook {name!r}: fails must be 'open' or 'closed'")
    return points
