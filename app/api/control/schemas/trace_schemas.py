"""Traces as JSON: of one message, and what a search has found."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Literal, Self

from pydantic import Field

from app.api.control.schemas.schemas import AnswerModel, MergedModel
from app.api.operations.operation import Json
from app.broker.tracing.message_trace import Sent, TraceEvent
from app.broker.tracing.trace_search import FoundEvent
from app.broker.tracing.traced_deliveries import TracedDelivery
from app.domain.message import StoredMessage

Kind = Literal[
    "sent",
    "sent_again",
    "delivered",
    "extended",
    "acked",
    "nacked",
    "released",
    "expired",
    "dead_lettered",
    "skipped",
    "parked",
    "redriven",
]
"""What happens to messages, in the words of the API."""


class TraceEventDocument(AnswerModel):
    """One thing that happened to the message after it was stored."""

    kind: str = Field(
        description="delivered, extended, acked, nacked, released, expired, dead_lettered, "
        "skipped, parked or redriven",
        examples=["delivered"],
    )
    at_ms: int = Field(description="When", examples=[1_800_000_000_000])
    group: str = Field(description="To which group", examples=["billing"])
    attempt: int | None = Field(
        description="1 for the first delivery; null: it names none", examples=[1]
    )
    client_id: str | None = Field(
        description="Who received; null: it named itself not", examples=["worker-9"]
    )
    detail: str | None = Field(
        description="A reason, or where the message went", examples=["the lease ran out"]
    )

    @classmethod
    def of(cls, event: TraceEvent) -> Self:
        return cls(
            kind=event.kind.name.lower(),
            at_ms=event.at_ms,
            group=event.group,
            attempt=event.attempt,
            client_id=event.client_id,
            detail=event.detail,
        )


class TraceProducerDocument(AnswerModel):
    """How the message came. What its request did not say is null."""

    client_id: str | None = Field(
        description="`MQ-Client-Id` of the send, or its `MQ-Producer-Id`", examples=["shop-3"]
    )
    producer_group: str | None = Field(
        description="`MQ-Producer-Group` of the send", examples=["shop"]
    )
    address: str | None = Field(description="Where it came from", examples=["10.0.0.7"])
    duration_ms: float | None = Field(
        description="How long the node took to store its request", examples=[1.25]
    )
    tries: int = Field(
        description="How often it was sent under its claim to be stored once; 1 without one",
        examples=[1],
    )
    last_try_ms: int = Field(
        description="When it was stored, or the last repetition came", examples=[1_800_000_000_000]
    )

    @classmethod
    def of(cls, sent: Sent) -> Self:
        client_id, group, address = sent.producer
        return cls(
            client_id=client_id,
            producer_group=group,
            address=address,
            duration_ms=None if sent.seconds is None else round(sent.seconds * 1_000, 3),
            tries=sent.tries,
            last_try_ms=sent.last_try_ms,
        )


class TraceDeliveryDocument(AnswerModel):
    """One delivery of the message to a group."""

    group: str = Field(description="To which group", examples=["billing"])
    attempt: int | None = Field(description="1 for the first delivery", examples=[2])
    client_id: str | None = Field(description="Who received it", examples=["worker-9"])
    delivered_ms: int | None = Field(
        description="When; null: only its end is known", examples=[1_800_000_000_000]
    )
    ended_ms: int | None = Field(
        description="When it was settled or its lease ran out; null: it is held, or not known",
        examples=[1_800_000_000_120],
    )
    duration_ms: int | None = Field(description="Between both", examples=[120])
    result: str | None = Field(
        description="acked, nacked, released, expired, dead_lettered, skipped or parked; null: it "
        "is held, or not known",
        examples=["acked"],
    )
    reason: str | None = Field(
        description="Why, and when it comes again", examples=["no stock; again in 10000 ms"]
    )
    extended: int = Field(description="How often its lease was extended", examples=[0])
    dead_letter_offset: int | None = Field(
        description="Where it ended as a dead letter: the letter's `offset` in the group's",
        examples=[None],
    )

    @classmethod
    def of(cls, delivery: TracedDelivery) -> Self:
        return cls(
            group=delivery.group,
            attempt=delivery.attempt,
            client_id=delivery.client_id,
            delivered_ms=delivery.delivered_ms,
            ended_ms=delivery.ended_ms,
            duration_ms=delivery.duration_ms,
            result=None if delivery.result is None else delivery.result.name.lower(),
            reason=delivery.reason,
            extended=delivery.extended,
            dead_letter_offset=delivery.letter,
        )


class TraceDocument(AnswerModel):
    """A message's trace, the oldest event first. Retries belong to the message that failed."""

    message_id: str = Field(description="The message", examples=["6F1D0C7A0000018BCFE56800"])
    topic: str = Field(description="Its topic", examples=["orders"])
    queue_id: int = Field(description="Its queue", examples=[0])
    queue_offset: int = Field(description="Its place there", examples=[17])
    tag: str | None = Field(description="Its tag", examples=["paid"])
    keys: list[str] = Field(description="Its keys", examples=[["order-17"]])
    born_time_ms: int = Field(
        description="When its producer made it, as it said", examples=[1_799_999_999_990]
    )
    store_time_ms: int = Field(description="When it was stored", examples=[1_800_000_000_000])
    body_bytes: int = Field(description="Bytes of its body", examples=[512])
    is_traced: bool = Field(description="The topic's setting now: not off", examples=[True])
    is_complete: bool = Field(description="False: older events were left out", examples=[True])
    producer: TraceProducerDocument | None = Field(
        description="How it came; null: not noted, as of what the node puts in its place by itself "
        "(delayed messages, transactions, schedules)"
    )
    deliveries: list[TraceDeliveryDocument] = Field(description="What became of each delivery")
    events: list[TraceEventDocument] = Field(description="All that happened, in order")

    @classmethod
    def about(cls, message: StoredMessage) -> Json:
        """What the message says itself."""
        return {
            "message_id": message.message_id,
            "topic": message.topic,
            "queue_id": message.queue_id,
            "queue_offset": message.queue_offset,
            "tag": message.tag,
            "keys": list(message.keys),
            "born_time_ms": message.born_time_ms,
            "store_time_ms": message.store_time_ms,
            "body_bytes": len(message.body),
        }


class FoundEventDocument(AnswerModel):
    """An event of one message, or of neighbours in a queue to which the same happened at once."""

    kind: str = Field(description="What happened", examples=["nacked"])
    at_ms: int = Field(description="When", examples=[1_800_000_000_000])
    topic: str = Field(
        description="The topic; of a retry that of its original", examples=["orders"]
    )
    queue_id: int = Field(description="The queue", examples=[0])
    queue_offset: int = Field(
        description="The first message's place there; -1: it was delayed or the half of a "
        "transaction, and had none yet",
        examples=[17],
    )
    count: int = Field(description="Messages from there on", examples=[1])
    message_id: str | None = Field(
        description="Of the first; null: it is not kept any more",
        examples=["6F1D0C7A0000018BCFE56800"],
    )
    group: str | None = Field(
        description="The group; of a send the producer's", examples=["billing"]
    )
    attempt: int | None = Field(description="1 for the first delivery", examples=[1])
    client_id: str | None = Field(description="Who received, or sent", examples=["worker-9"])
    address: str | None = Field(description="Where a send came from", examples=["10.0.0.7"])
    detail: str | None = Field(description="A reason", examples=["no stock; again in 10000 ms"])
    duration_ms: float | None = Field(
        description="Of a send: how long the node took; of several the longest", examples=[1.25]
    )

    @classmethod
    def of(cls, event: FoundEvent) -> Self:
        return cls(**asdict(event) | {"kind": event.kind.name.lower()})


class TraceList(MergedModel):
    """A page of events, the oldest first. A page may be empty and go on: the work for one is
    bounded."""

    events: list[FoundEventDocument] = Field(description="What was found")
    scanned: int = Field(
        description="Notes that were looked at for it, of those that the caller may see",
        examples=[1_200],
    )
    next_page_token: str | None = Field(
        description="For the next page; null: the time has been gone through", examples=[None]
    )

    @classmethod
    def of(cls, events: Sequence[FoundEvent], scanned: int, token: str | None) -> Self:
        found = [FoundEventDocument.of(each) for each in events]
        return cls(events=found, scanned=scanned, next_page_token=token)
