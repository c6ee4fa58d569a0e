"""What clients saw, one event a line of JSON; many processes, one monotonic clock.

`began_s` and `ended_s` are taken by the client around its request, on the machine's monotonic
clock, so what the server did lies between them. `outcome` is "ok", "refused" (it says that nothing
was done) or "unknown" (no answer, or one that leaves it open).
"""

import msgspec


class Sent(msgspec.Struct, frozen=True, tag=True):
    """A send. `queue_id` and `queue_offset` are -1 unless the outcome is ok."""

    began_s: float
    ended_s: float
    outcome: str
    body: str
    key: str
    queue_id: int
    queue_offset: int


class Delivered(msgspec.Struct, frozen=True):
    """One message of a receive."""

    body: str
    key: str
    queue_id: int
    queue_offset: int
    attempt: int
    handle: str


class Received(msgspec.Struct, frozen=True, tag=True):
    """A receive; with an unknown outcome its messages are not known, but leased."""

    began_s: float
    ended_s: float
    outcome: str
    client: str
    invisible_s: float
    messages: list[Delivered]


class Settled(msgspec.Struct, frozen=True, tag=True):
    """An ack, nack or extend of one handle."""

    began_s: float
    ended_s: float
    outcome: str
    action: str
    handle: str
    new_handle: str = ""
    invisible_s: float = 0.0
    """Of an extend: from its time on."""


class Committed(msgspec.Struct, frozen=True, tag=True):
    """The group's committed offsets, as read."""

    began_s: float
    ended_s: float
    offsets: dict[int, int]


class NodeDied(msgspec.Struct, frozen=True, tag=True):
    """The node was killed in between and started again. Its leases are gone."""

    began_s: float
    ended_s: float


class DeadLetters(msgspec.Struct, frozen=True, tag=True):
    """All dead letters at the end: bodies, with repetitions, and their attempts."""

    began_s: float
    ended_s: float
    letters: list[tuple[str, int]]


class Drained(msgspec.Struct, frozen=True, tag=True):
    """From here on nothing was ready, leased or waiting for a retry any more."""

    began_s: float
    ended_s: float


class Made(msgspec.Struct, frozen=True, tag=True):
    """A topic or group was made; the request was repeated until it was certain. `life` counts."""

    began_s: float
    ended_s: float
    life: int


class Deleted(msgspec.Struct, frozen=True, tag=True):
    """It was deleted; the request was repeated until it was certain."""

    began_s: float
    ended_s: float
    life: int


class SentTo(msgspec.Struct, frozen=True, tag=True):
    """A send to a topic that is deleted and made again."""

    began_s: float
    ended_s: float
    outcome: str
    body: str


class Seen(msgspec.Struct, frozen=True, tag=True):
    """Messages that were read or received there."""

    began_s: float
    ended_s: float
    bodies: list[str]
    is_whole: bool
    """Everything that was readable."""


Event = (
    Sent
    | Received
    | Settled
    | Committed
    | NodeDied
    | DeadLetters
    | Drained
    | Made
    | Deleted
    | SentTo
    | Seen
)

_decoder = msgspec.json.Decoder(Event)
_encoder = msgspec.json.Encoder()


def encode_event(event: Event) -> bytes:
    """The event as a line."""
    return _encoder.encode(event) + b"\n"


def decode_events(text: bytes) -> list[Event]:
    """The events of a file; a torn last line, of a worker that was killed, is left out."""
    lines = text.split(b"\n")[:-1]
    return [_decoder.decode(line) for line in lines]
