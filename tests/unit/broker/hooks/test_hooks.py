"""Hooks are asked and told as they declare; what they do wrong harms nobody else."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from threading import Event, Thread, current_thread, main_thread

import pytest
from typing_extensions import override

from app.broker.hooks.hook_contract import (
    Failing,
    ForbiddenByHook,
    HookFailed,
    SendRequest,
    SentMessages,
    SettledMessages,
)
from app.broker.hooks.hooks import Hooks, NamedHook, UnusableHook
from app.domain.limits import (
    HOOK_EVENTS_PENDING_MAX,
    HOOK_HANDLES_PENDING_MAX,
    HOOK_REASON_CHARS_MAX,
    HOOK_THREADS_MAX,
)
from app.domain.message import Message
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio

SENT = SentMessages("orders", 0, 7, 2, 1_000, None, "127.0.0.1")


class Check:
    """Does what it is told."""

    def __init__(
        self,
        act: Callable[[SendRequest], object],
        fails: Failing = "closed",
        budget_ms: int = 5_000,
    ) -> None:
        self.act = act
        self.fails: Failing = fails
        self.budget_ms = budget_ms
        self.seen: list[str] = []

    def check_send(self, request: SendRequest) -> str | None:
        self.seen.append(request.kind)
        return self.act(request)  # type: ignore[return-value]


class Ear:
    """Hears everything."""

    budget_ms = 5_000

    def __init__(self) -> None:
        self.sends: list[list[SentMessages]] = []
        self.settles: list[SettledMessages] = []
        self.go_on = Event()
        self.go_on.set()
        self.calls = 0

    def after_send(self, sends: Sequence[SentMessages]) -> None:
        self.calls += 1
        assert self.go_on.wait(30)
        self.sends.append(list(sends))

    def on_settle(self, settles: Sequence[SettledMessages]) -> None:
        self.settles += settles


@pytest.fixture
def release() -> Iterator[Event]:
    """Ends the calls that hang, when the test ends."""
    event = Event()
    yield event
    event.set()


def hooks_of(*hooks: object) -> Hooks:
    return Hooks([NamedHook(f"h{n}", hook) for n, hook in enumerate(hooks)])  # type: ignore[arg-type]


def request(*bodies: bytes) -> SendRequest:
    return SendRequest("batch", "orders", lambda: [Message(body) for body in bodies])


def crash(_: SendRequest) -> object:
    raise ValueError("no luck")


def leave(_: SendRequest) -> object:
    raise SystemExit(3)


async def test_without_hooks_nothing_runs() -> None:
    hooks = Hooks()
    assert not any((hooks.check_sends, hooks.hear_sends, hooks.hear_settles))
    await hooks.check_send(request())


async def test_all_checks_are_asked_until_one_refuses() -> None:
    first, last = Check(lambda _: None), Check(lambda _: None)
    refusing = Check(lambda asked: f"{len(asked.messages)} are too many")
    hooks = hooks_of(first, refusing, last)
    with pytest.raises(ForbiddenByHook, match=r"h1.*2 are too many") as refused:
        await hooks.check_send(request(b"a", b"b"))
    assert (refused.value.outcome, refused.value.fields) == ("not_stored", {"hook": "h1"})
    assert (first.seen, refusing.seen, last.seen) == (["batch"], ["batch"], [])
    assert hooks.calls[1].counts == {("check_send", "refused"): 1}


async def test_messages_are_made_only_for_who_asks() -> None:
    made: list[int] = []

    def make() -> list[Message]:
        made.append(1)
        return [Message(b"x")]

    await hooks_of(Check(lambda _: None)).check_send(SendRequest("frame", "orders", make))
    assert made == []
    twice = Check(lambda asked: None if asked.messages is asked.messages else "made twice")
    await hooks_of(twice).check_send(SendRequest("frame", "orders", make))
    assert made == [1]


@pytest.mark.parametrize("act", [crash, leave, lambda _: 17])
async def test_a_check_that_fails_means_what_it_declares(
    act: Callable[[SendRequest], object], caplog: pytest.LogCaptureFixture
) -> None:
    is_open, closed = hooks_of(Check(act, "open")), hooks_of(Check(act, "closed"))
    await is_open.check_send(request())
    with pytest.raises(HookFailed, match="h0") as failed:
        await closed.check_send(request())
    assert (failed.value.outcome, failed.value.retry_after_s) == ("not_stored", 1)
    assert failed.value.retryable
    assert closed.calls[0].counts == {("check_send", "raised"): 1}
    for _ in range(3):
        await is_open.check_send(request())
    assert len([each for each in caplog.records if "hook h0" in each.message]) == 2  # once each


async def test_a_check_that_hangs_is_left_alone(release: Event) -> None:
    hanging = Check(lambda _: release.wait(30) and None, "closed", 20)
    hooks = hooks_of(hanging)
    for _ in range(HOOK_THREADS_MAX):
        with pytest.raises(HookFailed, match="longer than 20 ms"):
            await hooks.check_send(request())
    with pytest.raises(HookFailed, match="all its 4 threads"):
        await hooks.check_send(request())
    assert len(hanging.seen) == HOOK_THREADS_MAX
    assert hooks.calls[0].counts["check_send", "late"] == HOOK_THREADS_MAX
    release.set()
    await until(lambda: hooks._checks[0].threads.running == 0)
    await hooks.check_send(request())
    hooks.close()


async def test_many_checks_at_once_are_answered() -> None:
    hooks = hooks_of(Check(lambda _: None))
    both = [hooks.check_send(request()) for _ in range(HOOK_THREADS_MAX)]
    await asyncio.gather(*both)
    assert hooks.calls[0].counts["check_send", "ok"] == HOOK_THREADS_MAX


class UnwritableText(str):
    """A text that cannot be written."""

    __slots__ = ()

    @override
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("kind", ["a surrogate", "a subclass", "long", "lines"])
async def test_why_a_check_refuses_is_told_in_one_line(kind: str) -> None:
    why, told = {
        "a surrogate": ("no \ud800 key", "no \\ud800 key"),
        "a subclass": (UnwritableText("no key"), "no key"),
        "long": ("x" * 10_000_000, "x" * HOOK_REASON_CHARS_MAX),
        "lines": ("no\r\nX-Key: 1", "no  X-Key: 1"),
    }[kind]
    with pytest.raises(ForbiddenByHook) as refused:
        await hooks_of(Check(lambda _: why)).check_send(request())
    assert refused.value.detail == f"hook 'h0' refuses this send: {told}"
    refused.value.detail.encode()


class Unspeakable(Exception):
    """Its text is made on a thread of the hook, if at all."""

    texts: list[bool]

    @override
    def __str__(self) -> str:
        self.texts.append(current_thread() is main_thread())
        raise SystemExit(3)


async def test_what_a_check_raises_is_looked_at_on_its_thread(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = Unspeakable()
    error.texts = []

    def raise_it(_: SendRequest) -> object:
        raise error

    hooks = hooks_of(Check(raise_it))
    with pytest.raises(HookFailed, match="it raised Unspeakable"):
        await hooks.check_send(request())
    assert hooks.calls[0].counts == {("check_send", "raised"): 1}
    assert error.texts == [False]
    assert "it cannot say what" in caplog.text


async def test_what_a_check_raises_is_for_the_log_only(caplog: pytest.LogCaptureFixture) -> None:
    def raise_it(_: SendRequest) -> object:
        raise ValueError("postgres://ann:secret@db is away\nINFO all is well")

    with pytest.raises(HookFailed, match="it raised ValueError") as failed:
        await hooks_of(Check(raise_it)).check_send(request())
    assert "secret" not in failed.value.detail
    [line] = [each.getMessage() for each in caplog.records]
    assert line.endswith("postgres://ann:secret@db is away INFO all is well")


class Both(Ear):
    """Is asked, and hears."""

    fails: Failing = "closed"

    def __init__(self) -> None:
        super().__init__()
        self.budget_ms = 20
        self.answer = Event()
        self.answer.set()

    def check_send(self, request: SendRequest) -> str | None:
        assert self.answer.wait(30)
        return None


async def test_checks_and_what_is_told_do_not_wait_for_each_other() -> None:
    both = Both()
    hooks = hooks_of(both)
    both.answer.clear()
    for _ in range(HOOK_THREADS_MAX):  # the check has lost all its threads
        with pytest.raises(HookFailed, match="longer than"):
            await hooks.check_send(request())
    hooks.sent([SENT])
    await until(lambda: len(both.sends) == 1)
    both.go_on.clear()
    hooks.sent([SENT])
    counts = hooks.calls[0].counts
    await until(lambda: counts["after_send", "ok"] + counts["after_send", "late"] == 2)
    both.go_on.set()  # the second call is late; the first may have been, on a busy machine
    hooks.sent([SENT])
    await until(lambda: len(both.sends) == 3)  # checks are under way still
    assert hooks.calls[0].dropped == 0
    both.answer.set()
    await until(lambda: hooks._checks[0].threads.running == 0)
    hooks.close()


async def test_what_is_to_be_told_has_a_bound_by_its_handles() -> None:
    ear = Ear()
    hooks = hooks_of(ear)
    large = SettledMessages("orders", "billing", HOOK_HANDLES_PENDING_MAX - 1, list)
    for _ in range(4):  # the task that tells them runs no earlier than this one waits
        hooks.settled(large)
    assert hooks.calls[0].dropped == 2
    await until(lambda: len(ear.settles) == 2)
    hooks.settled(large)
    await until(lambda: len(ear.settles) == 3)
    assert hooks.calls[0].dropped == 2


async def test_what_is_sent_and_settled_is_told_in_batches() -> None:
    ear = Ear()
    ear.go_on.clear()
    hooks = hooks_of(ear)
    hooks.sent([SENT])
    await until(lambda: ear.calls == 1)
    for _ in range(50):
        hooks.sent([SENT])
    ear.go_on.set()
    await until(lambda: sum(map(len, ear.sends)) == 51)
    assert [len(each) for each in ear.sends] == [1, 50]
    hooks.settled(SettledMessages("orders", "billing", 0, list))
    await until(lambda: len(ear.settles) == 1)


async def test_a_slow_ear_is_told_less() -> None:
    ear = Ear()
    ear.go_on.clear()
    hooks = hooks_of(ear)
    hooks.sent([SENT])
    await until(lambda: ear.calls == 1)
    hooks.sent([SENT] * (HOOK_EVENTS_PENDING_MAX + 5))
    assert hooks.calls[0].dropped == 5
    ear.go_on.set()
    await until(lambda: sum(map(len, ear.sends)) == HOOK_EVENTS_PENDING_MAX + 1)


async def test_an_ear_that_is_late_hears_on_when_it_has_returned() -> None:
    ear = Ear()
    ear.budget_ms = 20
    ear.go_on.clear()
    hooks = hooks_of(ear)
    hooks.sent([SENT])
    await until(lambda: hooks.calls[0].counts["after_send", "late"] == 1)
    hooks.sent([SENT])
    ear.go_on.set()
    await until(lambda: len(ear.sends) == 2)


class NoFails:
    def check_send(self, request: SendRequest) -> str | None:
        return None


class Odd(NoFails):
    fails = "sometimes"


class Nothing:
    pass


class Hasty(Ear):
    budget_ms = 0


class Yes(Ear):
    budget_ms = True


class Waits:
    fails = "open"

    async def check_send(self, request: SendRequest) -> str | None:
        return "never"


class WaitsToHear:
    async def after_send(self, sends: Sequence[SentMessages]) -> None:
        pass


class NoMethod:
    after_send = "sends"


class ListOfFails(NoFails):
    fails = ["open"]  # noqa: RUF012


@pytest.mark.parametrize(
    ("hook", "text"),
    [
        (NoFails(), "fails = 'open' or"),
        (Odd(), "must be 'open' or"),
        (Nothing(), "none of check_send"),
        (Hasty(), "from 1 to 5000"),
        (Yes(), "from 1 to 5000"),
        (Waits(), "check_send is a coroutine, which nobody awaits"),
        (WaitsToHear(), "after_send is a coroutine"),
        (NoMethod(), "after_send is no method"),
        (ListOfFails(), "must be 'open' or"),
    ],
)
async def test_a_hook_that_is_not_one_is_refused(hook: object, text: str) -> None:
    with pytest.raises(UnusableHook, match=text):
        hooks_of(hook)


async def test_a_thread_that_cannot_be_started_is_told_and_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = Both()
    hooks = hooks_of(both)

    def refused(_thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as without_threads:
        without_threads.setattr(Thread, "start", refused)
        with pytest.raises(HookFailed, match="no thread can be started"):
            await hooks.check_send(request())
        hooks.sent([SENT])
        await until(lambda: hooks.calls[0].dropped == 1)
    await hooks.check_send(request())
    hooks.sent([SENT])
    await until(lambda: len(both.sends) == 1)
    hooks.close()


async def test_behind_its_end_nothing_is_asked_and_nothing_waits() -> None:
    both = Both()
    hooks = hooks_of(both)
    hooks.close()
    with pytest.raises(HookFailed, match="the node stops"):
        await hooks.check_send(request())
    hooks.sent([SENT])
    assert (hooks.calls[0].dropped, hooks._sends[0]._task) == (1, None)


async def test_a_reason_is_no_longer_than_its_bound_when_it_is_escaped() -> None:
    hooks = hooks_of(Check(lambda _: "\ud800" * HOOK_REASON_CHARS_MAX))
    with pytest.raises(ForbiddenByHook) as refused:
        await hooks.check_send(request())
    reason = refused.value.detail.partition("refuses this send: ")[2]
    assert len(reason) == HOOK_REASON_CHARS_MAX
    assert reason.startswith("\\ud800")
    hooks.close()
