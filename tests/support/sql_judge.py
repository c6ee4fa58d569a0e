"""SQL conditions as plain tuples, and a naive evaluator of them, written from RocketMQ's rules.

Slow, direct, sharing nothing with the compiler: every value carries the name of its Java class.
"""

import random as randoms
from typing import Any

from hypothesis import strategies as st

Judged = tuple[Any, ...]
"""("or", left, right) · ("not", x) · ("=", left, right) · ("in", name, texts) · …; leaves are
("property", name), ("text", x), ("Integer" | "Long" | "Double", number), ("Boolean", x)."""


class _ThrownError(Exception):
    pass


NAMES = st.sampled_from(["a", "b", "TAGS"]).map(lambda name: ("property", name))
NUMBERS = st.one_of(
    st.integers(0, 12).map(lambda value: ("Integer", value)),
    st.integers(2**31, 2**33).map(lambda value: ("Long", value)),
    st.sampled_from([0.5, 5.0, 5.5, 10.0]).map(lambda value: ("Double", value)),
)
TEXTS = st.sampled_from(["5", "x", "it's", "TagA", "TagB", ""])
MORE_OR_LESS = st.one_of(NAMES, NUMBERS)
VALUES = st.one_of(NAMES, NUMBERS, TEXTS.map(lambda text: ("text", text)))


def conditions() -> st.SearchStrategy[Judged]:
    """Conditions that RocketMQ takes."""
    leaves = st.one_of(
        st.tuples(st.sampled_from(["=", "<>"]), VALUES, VALUES),
        st.tuples(st.sampled_from(["<", "<=", ">", ">="]), MORE_OR_LESS, MORE_OR_LESS),
        st.tuples(st.sampled_from(["in", "not in"]), NAMES, st.lists(TEXTS, min_size=1)),
        st.tuples(st.sampled_from(["is null", "is not null"]), VALUES),
        st.tuples(
            st.sampled_from(["contains", "not startswith", "endswith", "not contains"]),
            VALUES,
            TEXTS,
        ),
        st.tuples(st.just("not between"), MORE_OR_LESS, MORE_OR_LESS, MORE_OR_LESS),
        st.tuples(st.just("="), NAMES, st.booleans().map(lambda value: ("Boolean", value))),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(["and", "or"]), inner, inner),
            st.tuples(st.just("not"), inner),
            st.tuples(st.just("is null"), inner),
        ),
        max_leaves=8,
    )


def written(node: Judged, random: object = None) -> str:
    """The node as an expression, with blanks and capitals by chance."""
    chance = random if isinstance(random, randoms.Random) else randoms.Random(0)
    return _written(node, chance)


def _written(node: Judged, chance: randoms.Random) -> str:
    kind = node[0]
    blank = chance.choice([" ", "  ", "\n", " /* , */ "])
    if kind == "property":
        return str(node[1])
    if kind == "text":
        return "'" + str(node[1]).replace("'", "''") + "'"
    if kind in ("Integer", "Long", "Double", "Boolean"):
        return str(node[1])
    word = chance.choice([kind, kind.upper(), kind.title()]).replace(" ", blank)
    if kind in ("in", "not in"):
        texts = ",".join(_written(("text", text), chance) for text in node[2])
        return f"{node[1][1]}{blank}{word} ({texts})"
    if kind == "not between":
        low, high = _written(node[2], chance), _written(node[3], chance)
        return f"{_written(node[1], chance)} {word} {low} and {high}"
    if kind == "not":
        return f"{word}({_written(node[1], chance)})"
    operand = _written(node[1], chance)
    if kind in ("and", "or") or node[1][0] in ("and", "or", "not"):
        operand = f"({operand})"
    if kind.startswith("is "):
        return f"({operand}) {word}"
    right = ("text", node[2]) if isinstance(node[2], str) else node[2]
    return f"{operand}{blank}{word}{blank}{_bracketed(_written(right, chance), right)}"


def _bracketed(text: str, node: Judged) -> str:
    return f"({text})" if node[0] in ("and", "or", "not", "=", "<>") else text


def judge(node: Judged, properties: dict[str, str]) -> str:
    """T, F, N for null, E for "RocketMQ throws"."""
    try:
        value = _value(node, properties)
    except _ThrownError:
        return "E"
    return "N" if value is None else "T" if value[1] else "F"


def _value(node: Judged, properties: dict[str, str]) -> tuple[str, Any] | None:
    """A pair of class and value, or None."""
    kind = node[0]
    if kind == "property":
        return ("String", properties[node[1]]) if node[1] in properties else None
    if kind == "text":
        return "String", node[1]
    if kind in ("Integer", "Long", "Double", "Boolean"):
        return node[0], node[1]
    result = _judged(node, properties)
    return None if result is None else ("Boolean", result)


def _judged(node: Judged, properties: dict[str, str]) -> bool | None:
    kind = node[0]
    if kind in ("and", "or"):
        return _joined(kind == "or", node, properties)
    if kind in ("not", "<>", "is not null"):
        inner = {"not": node[1], "<>": ("=", *node[1:]), "is not null": ("is null", node[1])}[kind]
        value = _value(inner, properties)
        return None if value is None else not value[1]
    if kind == "not between":
        return _joined(True, ("or", ("<", node[1], node[2]), (">", node[1], node[3])), properties)
    left = _value(node[1], properties)
    if kind == "is null":
        return left is None
    if kind in ("in", "not in"):
        return None if left is None else (left[1] in node[2]) == (kind == "in")
    if kind.split()[-1] in ("contains", "startswith", "endswith"):
        return _matched(kind, left, node[2])
    if kind == "=":
        return _equal(left, _value(node[2], properties))
    if left is None:
        return None
    right = _value(node[2], properties)
    if right is None:
        return None
    left_number, right_number = _numbers(left, right)
    return {
        "<": left_number < right_number,
        "<=": left_number <= right_number or _both_nan(left_number, right_number),
        ">": left_number > right_number,
        ">=": left_number >= right_number or _both_nan(left_number, right_number),
    }[kind] or _nan_above(kind, left_number, right_number)


def _joined(is_or: bool, node: Judged, properties: dict[str, str]) -> bool | None:
    left = _value(node[1], properties)
    if left == ("Boolean", is_or):
        return is_or
    right = _value(node[2], properties)
    if right == ("Boolean", is_or):
        return is_or
    return None if left is None or right is None else not is_or


def _matched(kind: str, left: tuple[str, Any] | None, part: str) -> bool:
    if left is None or left[0] != "String" or not part:
        return False
    word = kind.rsplit(maxsplit=1)[-1]
    text = left[1]
    at_start, at_end = text[: len(part)] == part, text[-len(part) :] == part
    found = {"contains": part in text, "startswith": at_start, "endswith": at_end}[word]
    return bool(found) != kind.startswith("not ")


def _equal(left: tuple[str, Any] | None, right: tuple[str, Any] | None) -> bool | None:
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    if left[0] == right[0]:
        return bool(left[1] == right[1])
    if right[0] == "Boolean":
        return bool((left[1].lower() == "true") == right[1]) if left[0] == "String" else False
    left_number, right_number = _numbers(left, right)
    return bool(left_number == right_number)


def _both_nan(left: float, right: float) -> bool:
    return left != left and right != right


def _nan_above(kind: str, left: float, right: float) -> bool:
    """Java takes NaN for the greatest number."""
    if kind in (">", ">="):
        return left != left and right == right
    return right != right and left == left


def _numbers(left: tuple[str, Any], right: tuple[str, Any]) -> tuple[Any, Any]:
    if left[0] == right[0] == "String":
        return _parsed(left[1], "Double"), _parsed(right[1], "Double")
    if left[0] == "String":
        return _parsed(left[1], right[0]), right[1]
    if right[0] == "String":
        return left[1], _parsed(right[1], left[0])
    return left[1], right[1]


def _parsed(text: str, kind: str) -> Any:
    """The texts of the tests only; what Java takes beyond them is in the grid."""
    known = {"5": 5, "10": 10, "-5": -5}
    if kind in ("Integer", "Long"):
        if kind == "Long":
            known["3000000000"] = 3_000_000_000
        if text not in known:
            raise _ThrownError
        return known[text]
    decimals = {"5.5": 5.5, "3000000000": 3e9, "5": 5.0, "10": 10.0, "-5": -5.0}
    if text.strip() == "NaN":
        return float("nan")
    if text.strip() not in decimals:
        raise _ThrownError
    return decimals[text.strip()]
