"""What is decided about leased messages, and the requests that say it. Pure."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from curlew_client.consuming.messages import Received

Kind = Literal["ack", "nack", "dead_letter", "release"]

REASON_CHARS_MAX: Final = 500
_ORDER: Final[tuple[Kind, ...]] = ("ack", "nack", "dead_letter", "release")
GONE: Final = frozenset({404, 410})
"""Statuses of handles that are void: their messages are done, or will be delivered again."""


class Decision(NamedTuple):
    """What is to become of one message."""

    kind: Kind
    message: "Received[Any]"
    delay_ms: int | None = None
    reason: str = ""


class Settled(NamedTuple):
    """A decision, and the problem of the node that refused it; None: done."""

    decision: Decision
    status: int
    problem: dict[str, Any] | None


def settle_body(decisions: Sequence[Decision]) -> tuple[bytes, list[Decision]]:
    """The body of a settle, and the decisions in the order of its results."""
    acked = [each for each in decisions if each.kind == "ack"]
    others = [each for each in decisions if each.kind != "ack"]
    others.sort(key=lambda each: _ORDER.index(each.kind))
    body: dict[str, list[Any]] = {}
    if acked:
        body["acks"] = [each.message.receipt_handle for each in acked]
    for each in others:
        handle = each.message.receipt_handle
        if each.kind == "release":
            body.setdefault("releases", []).append(handle)
        else:
            entry: dict[str, Any] = {"receipt_handle": handle}
            if each.reason:
                entry["reason"] = each.reason[:REASON_CHARS_MAX]
            if each.delay_ms is not None:
                entry["delay_ms"] = each.delay_ms
            name = "nacks" if each.kind == "nack" else "dead_letters"
            body.setdefault(name, []).append(entry)
    return json.dumps(body).encode(), acked + others


def settled_of(shown: Any, ordered: Sequence[Decision]) -> list[Settled]:
    """The results of a settle, from its answer or from the problem when none succeeded."""
    results = shown.get("results") if isinstance(shown, dict) else None
    if not isinstance(results, list) or len(results) != len(ordered):
        return [Settled(each, 500, {"detail": "the node did not say"}) for each in ordered]
    return [
        Settled(decision, result["status"], result.get("error"))
        for decision, result in zip(ordered, results, strict=True)
    ]
