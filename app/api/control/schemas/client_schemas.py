"""Lists of clients as JSON: who consumes, who produces."""

import re
from typing import Final, Literal, Self

from pydantic import Field

from app.api.control.schemas.schemas import AnswerModel, MergedModel
from app.broker.figures.clients import ClientRow

_VERSION: Final = re.compile(r"[^\s/]+/([0-9A-Za-z.+_-]{1,32})")


class ClientTopicDocument(AnswerModel):
    """What a client reads, or sends to."""

    topic: str = Field(description="The topic", examples=["orders"])
    filter: str | None = Field(description="Null: everything", examples=["paid || refunded"])


class _ClientDocument(AnswerModel):
    """What all clients have. Null is what this node does not know."""

    client_id: str | None = Field(
        description="As the client called itself; null: it did not", examples=["worker-9"]
    )
    principal: str | None = Field(
        description="Whose key it used last; null: it asked without one", examples=["billing-app"]
    )
    address: str | None = Field(description="Where it asked from last", examples=["10.0.0.7"])
    user_agent: str = Field(description="As it said", examples=["curlew-client-python/1.2"])
    version: str | None = Field(
        description="Of its first product in the user agent", examples=["1.2"]
    )
    topics: list[ClientTopicDocument] = Field(description="What it reads, or sends to")
    first_seen_ms: int = Field(description="Its first request", examples=[1_800_000_000_000])
    last_seen_ms: int = Field(description="Its last request", examples=[1_800_000_060_000])
    rate_per_s: float = Field(description="Messages a second, of late", examples=[12.5])
    node_id: str = Field(description="The node that it asks", examples=["6f1d0c7a52e84b0b"])


class ConsumerDocument(_ClientDocument):
    """Who consumes in a group."""

    kind: Literal["receive", "stream", "heartbeat", "poll"] = Field(
        description="How: by receives, a stream, or as a member by heartbeats or polls",
        examples=["receive"],
    )
    in_flight: int | None = Field(
        description="Messages that it holds; known where the group has `max_in_flight_per_member` "
        "or `max_in_flight_bytes`",
        examples=[16],
    )
    in_flight_bytes: int | None = Field(
        default=None, description="Bytes of their records, as well", examples=[16384]
    )
    assigned: int | None = Field(
        description="Queues that it owns; null: it is no member", examples=[4]
    )


class ConsumerList(AnswerModel):
    """A page of a group's clients, by name."""

    clients: list[ConsumerDocument] = Field(description="By name and kind")
    next_page_token: str | None = Field(description="Null on the last page", examples=[None])
    partial: list[str] = Field(description="Shards that did not answer", examples=[[]])


class ProducerDocument(_ClientDocument):
    """Who produces to a topic."""

    producer_group: str | None = Field(
        description="Who is asked for undecided transactions", examples=["shop"]
    )
    producer_id: str | None = Field(description="Who numbers its messages", examples=["shop-1"])
    sent: int = Field(description="Messages since `first_seen_ms`", examples=[1_200])
    failed: int = Field(description="Sends refused or failed since then", examples=[0])

    @classmethod
    def of(cls, row: ClientRow, now_ms: int, node_id: str) -> Self:
        return cls(
            client_id=row.client_id,
            principal=row.principal,
            address=row.address,
            user_agent=row.user_agent,
            version=version_of(row.user_agent),
            topics=topics_of(row),
            first_seen_ms=row.first_seen_ms,
            last_seen_ms=row.last_seen_ms,
            rate_per_s=row.rate_per_s(now_ms),
            node_id=node_id,
            producer_group=row.producer_group,
            producer_id=row.producer_id,
            sent=row.count,
            failed=row.failed,
        )


class ProducerList(AnswerModel):
    """A page of a topic's producers, by name."""

    clients: list[ProducerDocument] = Field(description="By name")
    next_page_token: str | None = Field(description="Null on the last page", examples=[None])
    partial: list[str] = Field(description="Shards that did not answer", examples=[[]])


class GroupClientDocument(ConsumerDocument):
    """A client in one of its groups."""

    group: str = Field(description="The group", examples=["billing"])


class ClientDocument(MergedModel):
    """One client: all that it consumes and produces."""

    client_id: str = Field(description="The client", examples=["worker-9"])
    consumes: list[GroupClientDocument] = Field(description="By group and kind")
    produces: list[ProducerDocument] = Field(description="By topic")


def topics_of(row: ClientRow) -> list[ClientTopicDocument]:
    """By name."""
    return [
        ClientTopicDocument(topic=topic, filter=expression)
        for topic, expression in sorted(row.topics.items())
    ]


def version_of(user_agent: str) -> str | None:
    """That of the first product."""
    found = _VERSION.match(user_agent)
    return found[1] if found else None
