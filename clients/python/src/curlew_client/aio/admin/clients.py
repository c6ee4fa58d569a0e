"""Who consumes and who produces."""

from curlew_client.aio.admin.asking import AsyncAsking
from curlew_client.documents.clients import (
    Client,
    Consumer,
    Producer,
    SequencedProducer,
)
from curlew_client.wire.http1 import path_part as part


class AsyncClients(AsyncAsking):
    """Who consumes and who produces."""

    async def list_group_clients(self, group: str, *, prefix: str | None = None) -> list[Consumer]:
        """Who consumes in a group."""
        return await self._all(
            Consumer, f"/v1/groups/{part(group)}/clients", "clients", prefix=prefix
        )

    async def list_topic_producers(
        self, topic: str, *, prefix: str | None = None
    ) -> list[Producer]:
        """Who produces to a topic."""
        return await self._all(
            Producer, f"/v1/topics/{part(topic)}/producers", "clients", prefix=prefix
        )

    async def get_client(self, client_id: str) -> Client:
        """What a client consumes and produces."""
        return await self._ask(Client, "GET", f"/v1/clients/{part(client_id)}")

    async def get_producer(self, producer: str) -> SequencedProducer:
        """What is known of a producer."""
        return await self._ask(SequencedProducer, "GET", f"/v1/producers/{part(producer)}")

    async def delete_producer(self, producer: str) -> None:
        """Forget a producer and all whose ids begin with it."""
        await self.request("DELETE", f"/v1/producers/{part(producer)}")
