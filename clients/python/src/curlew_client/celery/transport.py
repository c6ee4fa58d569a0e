"""kombu's transport over the client. Every process that needs one makes one of its own."""

import logging
import os
import threading
from time import monotonic
from typing import Any, ClassVar, Final

from kombu.exceptions import ChannelError
from kombu.transport import virtual

from curlew_client.celery.channel import Channel
from curlew_client.celery.consuming import DRAIN_S, Lease
from curlew_client.celery.payloads import DELAY_MS_MAX
from curlew_client.celery.topology import Topology
from curlew_client.client import Client
from curlew_client.errors import (
    ClientClosed,
    ConnectionFailed,
    CurlewError,
    NodeFault,
    NotFound,
    TimedOut,
    TryAgain,
)
from curlew_client.options import VERSION
from curlew_client.worker import Worker

LOG: Final = logging.getLogger("curlew_client")
CHECK_S: Final = 1.0
"""How often a wait for messages looks whether its consumers still work."""
INVISIBLE_S: Final = 30.0
CONSUME_TIMEOUT_S: Final = 3_600.0
"""As the visibility time-out of Celery's Redis transport."""


class Transport(virtual.Transport):  # type: ignore[misc]
    """A connection: one client, and what it has declared.

    The password of the URL is the API key. Transport options, durations in seconds:

    - `prefix`: of topics and groups
    - `invisible`: until the tasks of a worker that is gone are delivered again (30)
    - `consume_timeout`: until a task that nobody has acked is delivered again (3,600)
    - `delay_max`: that the node delays a message at most (40 days)
    - `nodes`: the URLs of other nodes of the cluster
    - `client`: a dict of the client's `Options`
    """

    Channel = Channel
    driver_type = "curlew"
    driver_name = "curlew_client"
    default_port = 8710
    scheme: ClassVar[str] = "http"
    connection_errors: ClassVar[tuple[type[Exception], ...]] = (ConnectionError, CurlewError)
    recoverable_connection_errors: ClassVar[tuple[type[Exception], ...]] = (
        *(ConnectionError, ConnectionFailed, TimedOut, TryAgain),
        *(NodeFault, NotFound, ClientClosed),
    )
    """After which a publication is tried again."""
    channel_errors: ClassVar[tuple[type[Exception], ...]] = (ChannelError,)
    recoverable_channel_errors: ClassVar[tuple[type[Exception], ...]] = ()
    implements = virtual.Transport.implements.extend(
        asynchronous=False,
        exchange_type=frozenset(["direct", "topic", "fanout"]),
        heartbeats=False,
    )

    def __init__(self, client: Any, **arguments: Any) -> None:
        super().__init__(client, **arguments)
        options = client.transport_options
        self.lease = Lease(
            float(options.get("invisible", INVISIBLE_S)),
            float(options.get("consume_timeout", CONSUME_TIMEOUT_S)),
        )
        self.delay_ms_max = round(1_000 * float(options.get("delay_max", DELAY_MS_MAX / 1_000)))
        host, port = client.hostname or "127.0.0.1", client.port or self.default_port
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._urls = [f"{self.scheme}://{address}", *options.get("nodes", ())]
        self._options = {"key": client.password or client.userid or None}
        self._options |= options.get("client", {})
        if "client_id" in self._options:
            raise ValueError("client_id: each consumer is a client of its own, with its own id")
        self.curlew = Client(self._urls, **self._options)
        self.topology = Topology(self.curlew, options.get("prefix", ""))
        self._news = threading.Event()
        self._process = os.getpid()

    def worker(self) -> Worker:
        """A worker, which is a client of its own."""
        return Worker(self._urls, drain=DRAIN_S, **self._options)

    def wake(self) -> None:
        """Something has come, or there is room for it. From any thread."""
        self._news.set()

    def driver_version(self) -> str:
        """That of the client."""
        return VERSION

    def establish_connection(self) -> Any:
        """Ask the node who we are, so that a wrong address or key is told now."""
        self.curlew.admin.get_whoami()
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        """Close the channels, and the client, whatever one of them raises."""
        self.cycle.close()
        for channel in {*self._avail_channels, *self.channels}:
            try:
                channel.close()
            except Exception as error:  # noqa: BLE001  # the others have to be closed, too
                LOG.warning("a channel was not closed well: %s", error)
        self._avail_channels.clear()
        self.channels.clear()
        self.curlew.close()

    def _collect(self, connection: Any) -> None:
        """kombu's way to let a connection go, after a fork too: its threads are the parent's."""
        if self._process == os.getpid():
            self.close_connection(connection)
            return
        for channel in [*self._avail_channels, *self.channels]:
            channel.forget()
        self._avail_channels.clear()
        self.channels.clear()

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver the next message; `TimeoutError` when none comes in time."""
        end_s = None if timeout is None else monotonic() + timeout
        while True:
            self._news.clear()
            for channel in list(self.channels):
                if channel.deliver_next():
                    self.channels.sort(key=lambda each: each is channel)  # the others' turn
                    return
            left_s = CHECK_S if end_s is None else min(CHECK_S, end_s - monotonic())
            if left_s <= 0:
                raise TimeoutError
            self._news.wait(left_s)


class TlsTransport(Transport):
    """The same over HTTPS."""

    scheme: ClassVar[str] = "https"
