"""Java's numbers: which texts are one, and how two compare. Pure.

RocketMQ keeps properties as texts and converts them to the type of the literal that they are
compared with, so a literal's type decides which texts are numbers: `5` makes it Integer (32 bits),
`3000000000` Long, `5.0` Double.
"""

import math
import re
import unicodedata
from enum import Enum
from typing import Final, NamedTuple

from app.broker.filters.sql.faults import NotComparable


class NumberKind(Enum):
    """Java's type of a number."""

    INTEGER = 32
    LONG = 64
    DOUBLE = 0


class Number(NamedTuple):
    """A literal number."""

    kind: NumberKind
    value: int | float


LONG_MAX: Final = 2**63 - 1
INTEGER_MAX: Final = 2**31 - 1
DOUBLE_MIN: Final = 5e-324
"""Java's Double.MIN_VALUE, the smallest positive one."""

_WHOLE: Final = re.compile(r"[+-]?\d+")
_DECIMAL: Final = re.compile(
    r"(?P<number>[+-]?(?:NaN|Infinity))"
    r"|(?P<decimal>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|(?P<hex>[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_TRIMMED: Final = "".join(map(chr, range(33)))
_DIGITS_OF_LONG: Final = 19


def number_in(text: str, kind: NumberKind) -> int | float:
    """The number that Java's `valueOf` of that type finds in `text`; else `NotComparable`."""
    if kind is NumberKind.DOUBLE:
        return _double_in(text)
    if not _WHOLE.fullmatch(text):
        raise NotComparable
    if not text.isascii():
        text = _ascii_digits(text)
    digits = text.lstrip("+-").lstrip("0") or "0"
    if len(digits) > _DIGITS_OF_LONG:
        raise NotComparable
    value = -int(digits) if text[0] == "-" else int(digits)
    bound = 1 << (kind.value - 1)
    if not -bound <= value < bound:
        raise NotComparable
    return value


def _ascii_digits(text: str) -> str:
    """Java takes every decimal digit of Unicode's basic plane."""
    if any(character > "\uffff" for character in text):
        raise NotComparable
    return "".join(
        character if character in "+-" else str(unicodedata.decimal(character))
        for character in text
    )


def _double_in(text: str) -> float:
    match = _DECIMAL.fullmatch(text.strip(_TRIMMED))
    if match is None:
        raise NotComparable
    if match["hex"] is None:
        return float(match["number"] or match["decimal"])
    try:
        return float.fromhex(match["hex"])
    except OverflowError:
        return -math.inf if match["hex"][0] == "-" else math.inf


def compare(left: float, right: float) -> int:
    """Negative, 0 or positive. As Java: NaN equals itself and is the greatest, -0.0 below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) - math.isnan(right)
    if left == 0:
        return int(math.copysign(1, left) - math.copysign(1, right))
    return 0


def compare_numbers(left: Number, right: Number) -> int:
    """As `compare`; a whole number beside a Double becomes one first."""
    if NumberKind.DOUBLE in (left.kind, right.kind):
        return compare(float(left.value), float(right.value))
    return compare(left.value, right.value)


def compare_text(text: str, number: Number) -> int:
    """As `compare`, of the number in `text` and `number`; `NotComparable` when there is none."""
    return compare(number_in(text, number.kind), number.value)
