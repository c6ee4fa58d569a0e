"""A client of Curlew, a message service over plain HTTP.

from curlew_client import Client

with Client("http://127.0.0.1:8710") as curlew:
    curlew.send("orders", {"id": 17}, tag="created", keys=["order-17"])
"""

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
from curlew_client.options import Options
from curlew_client.producing.batches import SendFuture
from curlew_client.producing.messages import Message
from curlew_client.results import Reply, SendResult
from curlew_client.worker import Worker

__all__ = [
    "AsyncClient",
    "Client",
    "ClientClosed",
    "ConnectionFailed",
    "CurlewError",
    "DeadLetter",
    "HalfMessage",
    "Message",
    "NotCurlew",
    "Options",
    "Received",
    "Reply",
    "Retry",
    "SendFuture",
    "SendResult",
    "ServiceError",
    "TimedOut",
    "TooMuchUnderWay",
    "Worker",
]
