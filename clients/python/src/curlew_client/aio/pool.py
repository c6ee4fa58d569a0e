"""Connections that are kept between requests, by node.

The one used last is used first, so those that are not needed grow old and the node closes them.
The bound on them is the bound on requests at once, which the callers keep.
"""

from time import monotonic
from typing import TYPE_CHECKING, Final

from curlew_client.aio.connection import AsyncConnection
from curlew_client.options import Node
from curlew_client.wire.http1 import Answer

if TYPE_CHECKING:
    import ssl


TOLD_CONNECT_S: Final = 1.0
"""How long a connection to a node that was not given may take, or a third of what is left."""


class AsyncPool:
    """Connections of one client."""

    def __init__(self, tls: "ssl.SSLContext | None", connect_timeout_s: float) -> None:
        self._tls = tls
        self._connect_timeout_s = connect_timeout_s
        self._idle: dict[str, list[AsyncConnection]] = {}

    async def exchange(
        self, node: Node, data: bytes, deadline_s: float, begins_by_s: float | None = None
    ) -> Answer:
        """The answer to a request, on a kept connection or a new one, within its times.

        Raises `ConnectionFailed`, `TimedOut` or `NotCurlew`.
        """
        connection = self._kept(node)
        if connection is None:
            left_s = deadline_s - monotonic()
            bound_s = min(TOLD_CONNECT_S, left_s / 3) if node.is_told else left_s
            left_s = min(bound_s, self._connect_timeout_s)
            connection = await AsyncConnection.open(node, self._tls, max(left_s, 0.001))
        try:
            answer = await connection.exchange(data, deadline_s, begins_by_s)
        except BaseException:
            connection.close()
            raise
        if answer.keep_alive:
            self._idle.setdefault(node.url, []).append(connection)
        else:
            connection.close()
        return answer

    def _kept(self, node: Node) -> AsyncConnection | None:
        idle = self._idle.get(node.url)
        while idle:
            connection = idle.pop()
            if not connection.is_stale:
                return connection
            connection.close()
        return None

    def close(self) -> None:
        """Close the connections that are idle."""
        for idle in self._idle.values():
            while idle:
                idle.pop().close()
