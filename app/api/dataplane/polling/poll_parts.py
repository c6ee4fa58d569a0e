"""What of a poll another node asks of this one, for a member that it answers itself.

It asks for less than a client: to do what the member has said of queues here (`PollPart.takes`), to
read them, or to tell when there may be news (`receive_parts`). The answer to a look says in a
header, which no client gets, what it has seen. Who asks is in the envelope of the request, so that
no client can ask it.
"""

from typing import Final, NamedTuple

import msgspec

from app.api.dataplane.receive_parts import is_news
from app.api.http.request_context import ASKED, Headers, RequestContext
from app.broker.polling.poll_values import PollResult

POLLED: Final = b"curlew-polled"
"""State before the look, messages and bytes that were given, whether the wait is over."""


class PollPart(msgspec.Struct, frozen=True):
    """What is asked."""

    takes: bool = False
    """To do what the member has said, and nothing else."""
    joins: bool = False
    """The member may join here, or confirm its generation: its own node sees to that."""
    changed: int | None = None
    """The change of the group that is to be known here first."""
    max_messages: int = 0
    max_bytes: int = 1
    kept: list[tuple[str, int]] = []
    """Queues, as clients write them, that the member does not let go of in this poll."""


class Polled(NamedTuple):
    """What a look has seen."""

    state: str
    messages: int
    size: int
    has_found: bool

    @property
    def changed(self) -> int:
        """The newest change of the group that was known."""
        return int(self.state.partition(".")[0])


_decode: Final = msgspec.json.Decoder(PollPart).decode


def poll_part_asked(part: PollPart) -> str:
    """For `CallRequest.asks`."""
    return msgspec.json.encode(part).decode("ascii", "replace")


def poll_part_of(exchange: RequestContext) -> PollPart | None:
    """What of a poll is asked for here; None: all, or news."""
    asked: str = exchange.scope.get(ASKED, "")
    return None if not asked or is_news(exchange) else _decode(asked)


def polled_header(result: PollResult, messages: int, size: int) -> tuple[bytes, bytes]:
    """For the answer to a look."""
    text = f"{result.state} {messages} {size} {result.has_found:d}"
    return POLLED, text.encode("ascii")


def polled_in(headers: Headers) -> Polled | None:
    """What the header of an answer says; None without one."""
    for name, value in headers:
        if name == POLLED:
            state, messages, size, has_found = value.decode("ascii").split(" ")
            return Polled(state, int(messages), int(size), has_found == "1")
    return None
