"""What can be wrong: with an expression, and with a message under one."""


class Fault(Exception):
    """The expression is wrong at `position`, counted in characters from 0."""

    def __init__(self, what: str, position: int, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.position = position
        self.hint = hint


class NotComparable(Exception):
    """The message cannot be judged, for instance a text under a number: it does not match.

    RocketMQ throws in the same places and takes the message as not matching, whatever else the
    expression says.
    """
