"""An example of a hook: orders need a number, and somebody counts.

It imports nothing of the node: the names of its methods and attributes are the contract.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal


class OrderNumbers:
    """Refuses messages of `orders` without a key that begins with `order-`."""

    fails: Literal["open", "closed"] = "closed"
    """Without an answer of this hook nothing is sent to any topic."""
    budget_ms = 200

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def check_send(self, request: Any) -> str | None:
        """Called once for a request, with all its messages. The text goes to the sender."""
        if request.topic != "orders":
            return None  # messages that nobody asks for are not even decoded
        for number, message in enumerate(request.messages):
            if not any(key.startswith("order-") for key in message.keys):
                return f"message {number} has no key that begins with order-"
        return None

    def after_send(self, sends: Sequence[Any]) -> None:
        """Called with all that was stored since the last call."""
        for each in sends:
            self.counts[f"sent to {each.topic}"] += each.count

    def on_settle(self, settles: Sequence[Any]) -> None:
        """Called with all that was settled since the last call."""
        for each in settles:
            for handle in each.handles:
                self.counts[f"{handle.action} in {each.group}"] += handle.error is None
