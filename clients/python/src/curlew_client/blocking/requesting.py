# Made from aio/requesting.py by make_blocking.py. Change that, and run it.
"""Request and reply: a send that waits for its reply, and the reply."""

from curlew_client.blocking.sending import BlockingSender
from curlew_client.hooks import Reported
from curlew_client.producing.messages import Message, reply_request, send_request
from curlew_client.results import Reply, reply_of
from curlew_client.session import Session
from curlew_client.wire.http1 import path_part


def ask(
    session: Session, sender: BlockingSender, topic: str, message: Message, wait_ms: int
) -> Reply:
    """Send a request and wait for its reply."""
    session.check_usable()
    timeout_s = wait_ms / 1_000 + session.timeout_s
    with Reported(session.hooks, session.hooks.begin(topic, [message])):
        request = reply_request(topic, message, wait_ms)
        answered = sender.send(request, timeout_s, session.options.retries)
        assert answered is not None, "a request has no number that could be known"
        return reply_of(*answered)


def answer(session: Session, sender: BlockingSender, correlation_id: str, message: Message) -> None:
    """Give the reply to a request."""
    session.check_usable()
    request = send_request("replies", message, None)
    sender.call(
        "POST",
        f"/v1/replies/{path_part(correlation_id)}",
        request.body,
        lines=request.lines,
        timeout_s=session.timeout_s,
        retries=session.options.retries,
    )
