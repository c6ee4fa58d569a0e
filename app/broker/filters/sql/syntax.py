"""The parts of an expression, as RocketMQ builds them. Immutable values, no behaviour."""

from typing import NamedTuple

from app.broker.filters.sql.java_numbers import Number
from app.broker.filters.sql.tokens import Kind


class Property(NamedTuple):
    """The text of a property; null when the message has none of that name."""

    name: str


class Literal(NamedTuple):
    """A text, a number, TRUE, FALSE or NULL (None)."""

    value: str | Number | bool | None


class Negated(NamedTuple):
    """`- operand`: a number turned round; null for anything that is no number."""

    operand: "Node"


class Cast(NamedTuple):
    """A property where a condition stands: never true, since properties are texts."""

    operand: Property


class Not(NamedTuple):
    """True for false, false for true, null for null."""

    operand: "Node"


class And(NamedTuple):
    """All of two or more terms, looked at from left to right up to the first false one."""

    terms: tuple["Node", ...]


class Or(NamedTuple):
    """One of two or more terms, looked at from left to right up to the first true one."""

    terms: tuple["Node", ...]


class Equal(NamedTuple):
    """`=` and, with a literal NULL on the right, `IS NULL`."""

    left: "Node"
    right: "Node"


class Relation(NamedTuple):
    """`<`, `<=`, `>` or `>=`, of numbers only."""

    kind: Kind
    left: "Node"
    right: "Node"


class In(NamedTuple):
    """A property's text is one of `texts`, or is none of them; null without the property."""

    operand: Property
    texts: frozenset[str]
    is_negated: bool


class TextMatch(NamedTuple):
    """CONTAINS, STARTSWITH, ENDSWITH: false for what is no text, and for an empty `text`."""

    kind: Kind
    operand: "Node"
    text: str
    is_negated: bool


Node = Property | Literal | Negated | Cast | Not | And | Or | Equal | Relation | In | TextMatch


def is_condition(node: Node) -> bool:
    """Whether the node is true, false or null, and nothing else."""
    if isinstance(node, Literal):
        return node.value is None or isinstance(node.value, bool)
    return not isinstance(node, Property | Negated)
