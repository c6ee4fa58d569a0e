"""Where a page of delayed messages ends, as the text with which the next one begins. Pure.

All topics wait in one order, and who lists those of one must not learn from a page token when
another's are due. So a token names the last message that was listed; and where a page ends among
messages of others, a time at some distance before the last of them. It is not signed: it says no
more than its caller knows, and leads to nothing but what the caller may list. (To encrypt the exact
place would not hide it: messages of one's own around it show whether they are before it.)
"""

from typing import Final

from app.broker.delays.timer_records import identity_text
from app.domain.errors import IllegalPage
from app.store import Timer

_DIGITS_MAX: Final = 19
_BLUR_BITS: Final = 16
"""Of a due time in ms, that a token leaves out: about a minute."""


def token_of(behind: Timer) -> str:
    """The page behind a place; one without an offset is the beginning of its millisecond."""
    return str(behind.due_ms) if behind.offset < 0 else identity_text(behind)


def place_of(token: str) -> Timer:
    """Raises `IllegalPage` for what `token_of` did not give."""
    due, dash, offset = token.partition("-")
    parts = (due, offset) if dash else (due,)
    if not all(part.isascii() and part.isdigit() and len(part) <= _DIGITS_MAX for part in parts):
        raise IllegalPage(
            "the page token was not issued by this service",
            hint="begin again without page_token",
        )
    return Timer(int(due), int(offset) if dash else -1)


def blurred(behind: Timer, last: Timer) -> Timer:
    """A place between both, behind `behind`, that says next to nothing of `last`.

    What lies between it and `last` is looked at once more. That is about half of the page at most,
    but for pages that end in a sudden crowd: towards that the distance is halved each time.
    """
    if last.due_ms > behind.due_ms:
        return Timer(_rounded(behind.due_ms, last.due_ms), -1)
    return Timer(last.due_ms, _rounded(behind.offset, last.offset))


def _rounded(low: int, high: int) -> int:
    """`high` without its last bits, and still above `low`."""
    bits = min((max(low, 0) ^ high).bit_length() - 1, _BLUR_BITS)
    return high if bits < 0 else high >> bits << bits
