"""What the node says about who consumes and who produces."""

from typing import Literal, NotRequired, TypedDict


class ClientTopic(TypedDict):
    """What a client reads, or sends to."""

    topic: str
    filter: str | None


class _SeenClient(TypedDict):
    """Who was seen: what consumers and producers have in common."""

    client_id: str | None
    principal: str | None
    address: str | None
    user_agent: str
    version: str | None
    topics: list[ClientTopic]
    first_seen_ms: int
    last_seen_ms: int
    rate_per_s: float
    node_id: str


class Consumer(_SeenClient):
    """Who consumes in a group."""

    kind: Literal["receive", "stream", "heartbeat", "poll"]
    in_flight: int | None
    in_flight_bytes: int | None
    assigned: int | None


class GroupClient(Consumer):
    """A client in one of its groups."""

    group: str


class Producer(_SeenClient):
    """Who produces to a topic."""

    producer_group: str | None
    producer_id: str | None
    sent: int
    failed: int


class Client(TypedDict):
    """One client: all that it consumes and produces."""

    client_id: str
    consumes: list[GroupClient]
    produces: list[Producer]
    partial: NotRequired[list[str]]


class ConsumerList(TypedDict):
    """A page of a group's clients, by name."""

    clients: list[Consumer]
    next_page_token: str | None
    partial: list[str]


class ProducerSequence(TypedDict):
    """The next number of one sequence; `queue_id` is null where requests left the queue
    open."""

    topic: str
    queue_id: int | None
    next_seq: int


class SequencedProducer(TypedDict):
    """A producer. `epoch` is null when it has sent nothing, or its epoch was closed."""

    producer: str
    epoch: int | None
    sealed_epoch: int | None
    sequences: list[ProducerSequence]
    namespace: str
    partial: NotRequired[list[str]]


class ProducerList(TypedDict):
    """A page of a topic's producers, by name."""

    clients: list[Producer]
    next_page_token: str | None
    partial: list[str]
