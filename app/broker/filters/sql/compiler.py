"""From the tree to a function of a message's properties, with RocketMQ's three values. Pure.

A condition gives True, False or None (unknown); the message matches when the whole gives True. A
value is a text (a property or a literal), a number (a literal), a condition's result, or None.
What RocketMQ throws at raises `NotComparable` here, in the same places and in the same order, so
that a term that is not looked at cannot spoil the rest: `b = 'y' OR a > 5` is true for b = 'y',
whatever a holds; `a > 5 OR b = 'y'` is not when a holds a word.
"""

from collections.abc import Callable, Mapping
from typing import Final

from app.broker.filters.sql.faults import NotComparable
from app.broker.filters.sql.java_numbers import (
    Number,
    NumberKind,
    compare,
    compare_numbers,
    compare_text,
    number_in,
)
from app.broker.filters.sql.syntax import (
    And,
    Cast,
    Equal,
    In,
    Literal,
    Negated,
    Node,
    Not,
    Or,
    Property,
    Relation,
    TextMatch,
)
from app.broker.filters.sql.tokens import Kind

Properties = Mapping[str, str]
"""All of a message's, as stored: its own, and TAGS, KEYS, UNIQ_KEY and so on."""

Value = str | Number | bool | None
Evaluation = Callable[[Properties], Value]
Condition = Callable[[Properties], bool | None]

_IS_ORDERED: Final[dict[Kind, Callable[[int], bool]]] = {
    Kind.LESS: lambda order: order < 0,
    Kind.LESS_EQUAL: lambda order: order <= 0,
    Kind.GREATER: lambda order: order > 0,
    Kind.GREATER_EQUAL: lambda order: order >= 0,
}
_MATCHES: Final[dict[Kind, Callable[[str, str], bool]]] = {
    Kind.CONTAINS: lambda text, part: part in text,
    Kind.STARTSWITH: str.startswith,
    Kind.ENDSWITH: str.endswith,
}


def compile_condition(node: Node) -> Condition:
    """The function of a node that is a condition. It raises `NotComparable`, and nothing else."""
    match node:
        case Literal(value) if value is None or isinstance(value, bool):
            return lambda _: value
        case Cast(Property(name)):
            return lambda properties: False if name in properties else None
        case Not(operand):
            return _not(compile_condition(operand))
        case And(terms):
            return _and([compile_condition(term) for term in terms])
        case Or(terms):
            return _or([compile_condition(term) for term in terms])
        case Equal(left, right):
            return _equal(left, right)
        case Relation(kind, left, right):
            return _relation(kind, left, right)
        case In(Property(name), texts, is_negated):
            return _in(name, texts, is_negated)
        case TextMatch():
            return _text_match(node)
    raise AssertionError(node)


def _value(node: Node) -> Evaluation:
    match node:
        case Property(name):
            return lambda properties: properties.get(name)
        case Literal(value):
            return lambda _: value
        case Negated(operand):
            return _negated(operand)
    return compile_condition(node)


def _not(operand: Condition) -> Condition:
    def evaluate(properties: Properties) -> bool | None:
        value = operand(properties)
        return None if value is None else not value

    return evaluate


def _and(terms: list[Condition]) -> Condition:
    def evaluate(properties: Properties) -> bool | None:
        result: bool | None = True
        for term in terms:
            value = term(properties)
            if value is False:
                return False
            if value is None:
                result = None
        return result

    return evaluate


def _or(terms: list[Condition]) -> Condition:
    def evaluate(properties: Properties) -> bool | None:
        result: bool | None = False
        for term in terms:
            value = term(properties)
            if value is True:
                return True
            if value is None:
                result = None
        return result

    return evaluate


def _negated(operand: Node) -> Evaluation:
    inner = _value(operand)

    def evaluate(properties: Properties) -> Value:
        value = inner(properties)
        return Number(value.kind, -value.value) if isinstance(value, Number) else None

    if isinstance(operand, Literal):
        negative = evaluate({})
        return lambda _: negative
    return evaluate


def _in(name: str, texts: frozenset[str], is_negated: bool) -> Condition:
    def evaluate(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else (text in texts) is not is_negated

    return evaluate


def _text_match(node: TextMatch) -> Condition:
    part, is_negated = node.text, node.is_negated
    matches, inner = _MATCHES[node.kind], _value(node.operand)

    def evaluate(properties: Properties) -> bool | None:
        if not part:
            return False
        text = inner(properties)
        return isinstance(text, str) and matches(text, part) is not is_negated

    return evaluate


# --- comparing


def _equal(left: Node, right: Node) -> Condition:
    if isinstance(left, Property) and isinstance(right, Literal) and isinstance(right.value, str):
        return _is_text(left.name, right.value)
    left_of, right_of = _value(left), _value(right)

    def evaluate(properties: Properties) -> bool | None:
        return _are_equal(left_of(properties), right_of(properties))

    return evaluate


def _is_text(name: str, wanted: str) -> Condition:
    def evaluate(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else text == wanted

    return evaluate


def _are_equal(left: Value, right: Value) -> bool | None:
    """Not the same both ways round: a null on the left is unknown, one on the right is unequal."""
    if left is None or right is None:
        return None if left is None and right is not None else left is right
    if isinstance(left, str):
        if isinstance(right, str):
            return left == right
        if isinstance(right, Number):
            return compare_text(left, right) == 0
        return (left.lower() == "true") is right
    if isinstance(left, Number):
        if isinstance(right, str):
            return compare_text(right, left) == 0
        return isinstance(right, Number) and compare_numbers(left, right) == 0
    if isinstance(right, str):
        raise NotComparable
    return left is right


def _relation(kind: Kind, left: Node, right: Node) -> Condition:
    is_ordered = _IS_ORDERED[kind]
    left_of, right_of = _value(left), _value(right)

    def evaluate(properties: Properties) -> bool | None:
        left_value = left_of(properties)
        if left_value is None:
            return None
        right_value = right_of(properties)
        if right_value is None:
            return None
        return is_ordered(_order(left_value, right_value))

    return evaluate


def _order(left: Value, right: Value) -> int:
    """How two values lie, which are texts or numbers; two texts are compared as Doubles."""
    if isinstance(left, Number):
        if isinstance(right, Number):
            return compare_numbers(left, right)
        assert isinstance(right, str)
        return -compare_text(right, left)
    assert isinstance(left, str)
    if isinstance(right, Number):
        return compare_text(left, right)
    assert isinstance(right, str)
    return compare(number_in(left, NumberKind.DOUBLE), number_in(right, NumberKind.DOUBLE))
