"""A client of Curlew, a message service over plain HTTP.

from curlew_client import Client

with Client("http://127.0.0.1:8710") as curlew:
    curlew.send("orders", {"id": 17}, tag="created", keys=["order-17"])

A name is loaded when it is used first, so that a program which needs one of them starts fast.
"""

import importlib

TYPE_CHECKING = False  # as of typing, which takes half of the time that this package does
if TYPE_CHECKING:
    from curlew_client.assigned.options import Rebalance
    from curlew_client.assigned.records import QueueName
    from curlew_client.async_client import AsyncClient
    from curlew_client.client import Client
    from curlew_client.consuming.checks import HalfMessage
    from curlew_client.consuming.messages import Received
    from curlew_client.errors import (
        ClientClosed,
        ConnectionFailed,
        CurlewError,
        DeadLetter,
        NotCurlew,
        Retry,
        ServiceError,
        TimedOut,
        TooMuchUnderWay,
    )
    from curlew_client.hooks import Handling, Hook, Sending
    from curlew_client.options import Options
    from curlew_client.producing.batches import SendFuture
    from curlew_client.producing.messages import Message
    from curlew_client.results import Reply, SendResult
    from curlew_client.worker import Worker

_HOMES = {
    "assigned.options": ("Rebalance",),
    "assigned.records": ("QueueName",),
    "async_client": ("AsyncClient",),
    "client": ("Client",),
    "consuming.checks": ("HalfMessage",),
    "consuming.messages": ("Received",),
    "errors": (
        *("ClientClosed", "ConnectionFailed", "CurlewError", "DeadLetter", "NotCurlew", "Retry"),
        *("ServiceError", "TimedOut", "TooMuchUnderWay"),
    ),
    "hooks": ("Handling", "Hook", "Sending"),
    "options": ("Options",),
    "producing.batches": ("SendFuture",),
    "producing.messages": ("Message",),
    "results": ("Reply", "SendResult"),
    "worker": ("Worker",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AsyncClient",
    "Client",
    "ClientClosed",
    "ConnectionFailed",
    "CurlewError",
    "DeadLetter",
    "HalfMessage",
    "Handling",
    "Hook",
    "Message",
    "NotCurlew",
    "Options",
    "QueueName",
    "Rebalance",
    "Received",
    "Reply",
    "Retry",
    "SendFuture",
    "SendResult",
    "Sending",
    "ServiceError",
    "TimedOut",
    "TooMuchUnderWay",
    "Worker",
]

if not TYPE_CHECKING:  # who checks types sees the names above, and no others

    def __getattr__(name: str) -> object:
        home = _HOME_OF.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(f"{__name__}.{home}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
