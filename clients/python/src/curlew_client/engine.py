"""The connections of a client on one event loop, and what sends over them."""

import logging
from urllib.parse import quote

from curlew_client.aio.batching import AsyncBatcher
from curlew_client.aio.pool import AsyncPool
from curlew_client.aio.sending import AsyncSender
from curlew_client.errors import CurlewError
from curlew_client.session import Session

_LOG = logging.getLogger("curlew_client")


class AsyncEngine:
    """The connections of a client on one event loop, and what sends over them."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.pool = AsyncPool(session.options.tls, session.connect_timeout_s)
        self.sender = AsyncSender(session, self.pool)
        self.batcher = AsyncBatcher(session, self.sender)

    async def close(self) -> None:
        """Send what is left, let the node forget the lanes, and close the connections."""
        session = self.session
        await self.batcher.drain()
        if session.lanes.made_count:
            target = f"/v1/producers/{quote(session.lanes.family, safe='')}"
            try:
                await self.sender.call("DELETE", target, timeout_s=session.connect_timeout_s)
            except CurlewError as error:  # the node forgets them by itself, later
                _LOG.debug("the node was not told that %s is over: %s", session.client_id, error)
        self.pool.close()
