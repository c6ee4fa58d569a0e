"""The checking half of transactions: what a producer owes is asked for, and decided."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final, Literal

from curlew_client.aio.sending import AsyncSender
from curlew_client.consuming.calls import LOG, WAIT_S, is_passing
from curlew_client.errors import CurlewError, StateConflict
from curlew_client.session import Session
from curlew_client.wire.bodies import shown_body
from curlew_client.wire.http1 import path_part

CHECKS_AT_ONCE: Final = 16
FAILURE_PAUSE_S: Final = 1.0

Verdict = Literal["commit", "rollback"]
_VERDICTS: Final[dict[object, Verdict | None]] = {
    True: "commit",
    False: "rollback",
    "commit": "commit",
    "rollback": "rollback",
    None: None,
}


class HalfMessage:
    """A message whose transaction is open. `checks` counts the questions, this one included."""

    def __init__(self, shown: dict[str, Any]) -> None:
        message = shown["message"]
        self.transaction_id: str = shown["transaction_id"]
        self.checks: int = shown["checks"]
        self.prepared_ms: int = shown["prepared_ms"]
        self.topic: str = message["topic"]
        self.tag: str | None = message.get("tag")
        self.keys: list[str] = list(message.get("keys", ()))
        self.properties: dict[str, str] = dict(message.get("properties", {}))
        self.unique_id: str | None = message.get("unique_id")
        self.body = shown_body(message)

    @property
    def text(self) -> str:
        """The body as UTF-8; of a JSON body the blanks may differ from what was sent."""
        return self.body.decode()

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    def __repr__(self) -> str:
        return f"<half message {self.topic} {self.transaction_id}, check {self.checks}>"


def verdict_of(returned: object) -> Verdict | None:
    """What a checker says: True or "commit", False or "rollback", None for "I cannot tell yet"."""
    if isinstance(returned, bool | str | None) and returned in _VERDICTS:
        return _VERDICTS[returned]
    raise TypeError(
        f"a checker returns True (commit), False (rollback) or None (ask again), not {returned!r}"
    )


class RunningChecker:
    """The checker of one producer group at work, on an event loop."""

    def __init__(
        self,
        session: Session,
        sender: AsyncSender,
        group: str,
        function: Callable[[HalfMessage], Any],
        is_async: bool,
    ) -> None:
        self._session = session
        self._sender = sender
        self._target = f"/v1/producer-groups/{path_part(group)}/transactions:receive"
        self._function = function
        self._is_async = is_async
        self._task: asyncio.Task[None] | None = None
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """As of a consumer."""

    def start(self) -> None:
        """Begin to ask."""
        self._task = asyncio.get_running_loop().create_task(self._check_on())
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and not self.failure.done():
            error = task.exception()
            if error is not None:
                self.failure.set_exception(error)

    async def drain(self, within_s: float) -> None:
        """End; what is asked and not decided is asked again, of others."""
        del within_s
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _check_on(self) -> None:
        target = f"{self._target}?wait={WAIT_S:g}&max_transactions={CHECKS_AT_ONCE}"
        while True:
            try:
                answer, _ = await self._sender.call(
                    "POST", target, timeout_s=WAIT_S + self._session.timeout_s, is_long=True
                )
                asked = json.loads(answer.body)["transactions"]
            except CurlewError as error:
                if not is_passing(error):
                    raise
                LOG.warning("no transaction can be asked for now: %s", error)
                await asyncio.sleep(FAILURE_PAUSE_S)
                continue
            for each in asked:
                await self._check(HalfMessage(each))

    async def _check(self, half: HalfMessage) -> None:
        try:
            if self._is_async:
                returned = await self._function(half)
            else:
                returned = await asyncio.to_thread(self._function, half)
            verdict = verdict_of(returned)
        except Exception:  # noqa: BLE001
            LOG.warning("%r cannot be decided, and is asked again", half, exc_info=True)
            return
        if verdict is None:
            return
        try:
            await self._sender.call(
                "POST",
                f"/v1/transactions/{path_part(half.transaction_id)}:{verdict}",
                timeout_s=self._session.timeout_s,
                retries=self._session.options.retries,
            )
        except StateConflict as error:
            LOG.warning("%r was decided otherwise meanwhile: %s", half, error)
        except CurlewError as error:
            LOG.warning("%r is decided and cannot say so now: %s", half, error)
