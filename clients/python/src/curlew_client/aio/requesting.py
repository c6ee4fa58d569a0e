"""Request and reply: a send that waits for its reply, and the reply."""

from curlew_client.aio.sending import AsyncSender
from curlew_client.hooks import Reported
from curlew_client.producing.messages import Message, reply_request, send_request
from curlew_client.results import Reply, reply_of
from curlew_client.session import Session
from curlew_client.wire.http1 import path_part


async def ask(
    session: Session, sender: AsyncSender, topic: str, message: Message, wait_ms: int
) -> Reply:
    """Send a request and wait for its reply."""
    session.check_usable()
    timeout_s = wait_ms / 1_000 + session.timeout_s
    with Reported(session.hooks, session.hooks.begin(topic, [message])):
        request = reply_request(topic, message, wait_ms)
        answered = await sender.send(request, timeout_s, session.options.retries)
        assert answered is not None, "a request has no number that could be known"
        return reply_of(*answered)


async def answer(
    session: Session, sender: AsyncSender, correlation_id: str, message: Message
) -> None:
    """Give the reply to a request."""
    session.check_usable()
    request = send_request("replies", message, None)
    await sender.call(
        "POST",
        f"/v1/replies/{path_part(correlation_id)}",
        request.body,
        lines=request.lines,
        timeout_s=session.timeout_s,
        retries=session.options.retries,
    )
