"""What the HTTP shell needs of the broker and of the cluster's metadata.

Declared here, by the user of the ports, so that the shell can be tested against small fakes; the
real ones fit structurally.
"""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from app.broker.results import (
    BatchItem,
    Delivery,
    Extend,
    FrameResult,
    Nack,
    PullRequest,
    PullResult,
    QueuePosition,
    QueueRange,
    ReceiveRequest,
    ReceiveResult,
    SendResult,
    SettleResult,
)
from app.domain.errors import CurlewError
from app.domain.message import Message, StoredMessage
from app.domain.positions import FlushMode


class DataPlane(Protocol):
    """The broker's facade, as far as HTTP uses it."""

    async def send(
        self,
        topic: str,
        message: Message,
        *,
        queue_id: int | None = None,
        flush: FlushMode | None = None,
    ) -> SendResult: ...

    async def send_batch(
        self,
        topic: str,
        messages: Sequence[BatchItem | CurlewError],
        *,
        queue_id: int | None = None,
        spread: bool = False,
        strict: bool = False,
        flush: FlushMode | None = None,
    ) -> list[SendResult | CurlewError]: ...

    async def send_frame(
        self,
        topic: str,
        body: bytes,
        *,
        queue_id: int | None = None,
        flush: FlushMode | None = None,
    ) -> FrameResult: ...

    async def pull(self, topic: str, queue_id: int, request: PullRequest) -> PullResult: ...

    def decode(self, record: memoryview) -> StoredMessage: ...

    async def receive(
        self, topic: str, group: str, request: ReceiveRequest, *, gone: Callable[[], bool]
    ) -> ReceiveResult: ...

    def give_back(self, deliveries: Sequence[Delivery]) -> None: ...

    async def settle(
        self,
        topic: str,
        group: str,
        acks: Sequence[str],
        nacks: Sequence[Nack],
        extends: Sequence[Extend],
    ) -> list[SettleResult]: ...

    async def settle_one(self, action: str | Nack | Extend) -> SettleResult: ...

    def offsets(
        self, topic: str, at: Literal["earliest", "latest"] | int
    ) -> list[QueuePosition]: ...

    def queue_bounds(self, topic: str) -> list[QueueRange]: ...

    async def message(self, topic: str, message_id: str) -> StoredMessage: ...

    def readiness(self) -> list[str]: ...
