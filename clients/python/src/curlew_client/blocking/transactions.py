# Made from aio/transactions.py by make_blocking.py. Change that, and run it.
"""The sending half of a transaction: prepare, do the local work, commit or roll back."""

from types import TracebackType
from typing import Any, Self

from curlew_client.blocking.sending import BlockingSender
from curlew_client.errors import CurlewError
from curlew_client.hooks import Reported
from curlew_client.producing.messages import Message, send_request
from curlew_client.results import SendResult, result_of
from curlew_client.session import Session
from curlew_client.wire.bodies import Body
from curlew_client.wire.http1 import path_part


class Transaction:
    """One message that becomes visible together with local work. Use it as a block.

    `send` prepares the message, once. Leaving the block well commits, an exception rolls back. A
    decision without an answer is repeated; when none comes through, the checker of the producer
    group decides (`Worker.checker`).
    """

    def __init__(
        self,
        session: Session,
        sender: BlockingSender,
        topic: str,
        group: str,
        check_after_ms: int | None,
    ) -> None:
        self._session = session
        self._sender = sender
        self._topic = topic
        self._lines = f"mq-transaction: prepare; group={group}"
        if check_after_ms is not None:
            self._lines += f"; check-after={check_after_ms}ms"
        self.transaction_id: str | None = None
        """None until the message is prepared."""

    def __enter__(self) -> Self:
        return self

    def send(self, body: Body, **message: Any) -> SendResult:
        """Prepare the message; the parameters are those of `Message`."""
        if self.transaction_id is not None:
            raise ValueError("a transaction has one message, and it is sent already")
        self._session.check_usable()
        session = self._session
        half = Message(body, **message)
        with Reported(session.hooks, session.hooks.begin(self._topic, [half])) as reported:
            request = send_request(self._topic, half, None)
            reply = self._sender.send(
                request.also(f"{self._lines}\r\n"), session.timeout_s, session.options.retries
            )
            assert reply is not None, "a half message has no number that could be known"
            result = result_of(reply[0], self._topic, reply[1])
            reported.gave([result])
        self.transaction_id = result.transaction_id
        return result

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.transaction_id is None:
            return
        if error is None:
            self.decide("commit")
            return
        try:
            self.decide("rollback")
        except CurlewError as failure:
            error.add_note(f"and the transaction was not rolled back, the checker will: {failure}")

    def decide(self, decision: str) -> None:
        """Say `commit` or `rollback`; may be repeated."""
        if self.transaction_id is None:
            raise ValueError("nothing was sent in this transaction")
        self._sender.call(
            "POST",
            f"/v1/transactions/{path_part(self.transaction_id)}:{decision}",
            timeout_s=self._session.timeout_s,
            retries=self._session.options.retries,
        )
