"""From words to the tree, by recursive descent, with RocketMQ's precedence and its refusals. Pure.

From loose to tight: OR; AND; `=` `<>` `IS [NOT] NULL`; `<` `<=` `>` `>=` `[NOT] BETWEEN` `[NOT] IN`
`[NOT] CONTAINS|STARTSWITH|ENDSWITH`; unary `+` `-` NOT; parentheses. So `NOT a = 3` is
`(NOT a) = 3`, as in RocketMQ. One difference: RocketMQ stops at the first word that cannot go on
and drops the rest unread (`a = 1 b` is `a = 1`, `a LIKE 'x%'` is `a`); here that is an error.
"""

from typing import Final, NamedTuple

from app.broker.filters.sql.faults import Fault
from app.broker.filters.sql.java_numbers import (
    DOUBLE_MIN,
    INTEGER_MAX,
    LONG_MAX,
    Number,
    NumberKind,
    compare_numbers,
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
    is_condition,
)
from app.broker.filters.sql.tokens import Kind, Token, tokens_of

_RELATIONS: Final = frozenset({Kind.LESS, Kind.LESS_EQUAL, Kind.GREATER, Kind.GREATER_EQUAL})
_TEXT_MATCHES: Final = frozenset({Kind.CONTAINS, Kind.STARTSWITH, Kind.ENDSWITH})
_MAY_FOLLOW_NOT: Final = _TEXT_MATCHES | {Kind.BETWEEN, Kind.IN}
_CONSTANTS: Final = {Kind.TRUE: True, Kind.FALSE: False, Kind.NULL: None}
_DECIMAL_DIGITS_MAX: Final = 19
_LEFTOVER_HINTS: Final = {
    "LIKE": "there is no LIKE; use CONTAINS, STARTSWITH or ENDSWITH",
    "=": "'equal' is a single =",
    "+": "there is no arithmetic",
    "-": "there is no arithmetic; a property name has no '-'",
}


class _Part(NamedTuple):
    """A node, where it begins, and how many nodes lie on the longest way down from it."""

    node: Node
    position: int
    depth: int


def parse(text: str, *, depth_max: int) -> Node:
    """The tree of a whole condition, at most `depth_max` deep. Raises `Fault`."""
    return _Parser(tokens_of(text), depth_max).parse()


class _Parser:
    def __init__(self, tokens: list[Token], depth_max: int) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth_max = depth_max
        self._nesting = 0

    def parse(self) -> Node:
        part = _condition(self._alternatives())
        left_over = self._next
        if left_over.kind is not Kind.END:
            raise Fault(
                f"{left_over.image!r} is not expected",
                left_over.position,
                _LEFTOVER_HINTS.get(left_over.image.upper()),
            )
        return part.node

    # --- words

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _take_if(self, kind: Kind) -> bool:
        is_next = self._next.kind is kind
        self._at += is_next
        return is_next

    def _expect(self, kind: Kind) -> Token:
        token = self._next
        if token.kind is not kind:
            found = f"not {token.image!r}" if token.image else "but the expression ends"
            raise Fault(f"{_named(kind)} is expected, {found}", token.position)
        return self._take()

    # --- from loose to tight

    def _alternatives(self) -> _Part:
        return self._joined(Kind.OR)

    def _terms(self) -> _Part:
        return self._joined(Kind.AND)

    def _joined(self, kind: Kind) -> _Part:
        """Terms joined by AND, or by OR. One node however many, so that a long list is not deep."""
        operand = self._terms if kind is Kind.OR else self._equality
        first = operand()
        if self._next.kind is not kind:
            return first
        parts = [_condition(first)]
        while self._take_if(kind):
            parts.append(_condition(operand()))
        nodes = tuple(part.node for part in parts)
        return self._part(Or(nodes) if kind is Kind.OR else And(nodes), *parts)

    def _equality(self) -> _Part:
        left = self._comparison()
        while self._next.kind in (Kind.EQUAL, Kind.NOT_EQUAL, Kind.IS):
            kind = self._take().kind
            if kind is Kind.IS:
                is_negated = self._take_if(Kind.NOT)
                self._expect(Kind.NULL)
                node: Node = Equal(left.node, Literal(None))
                left = self._part(Not(node) if is_negated else node, left)
                continue
            right = self._comparison()
            _check_equal(left, right)
            node = Equal(left.node, right.node)
            left = self._part(node if kind is Kind.EQUAL else Not(node), left, right)
        return left

    def _comparison(self) -> _Part:
        left = self._unary()
        while True:
            kind = self._next.kind
            if kind in _RELATIONS:
                self._take()
                right = self._unary()
                left = self._part(_relation(kind, left, right), left, right)
            elif kind is Kind.NOT or kind in _MAY_FOLLOW_NOT:
                left = self._predicate(left)
            else:
                return left

    def _predicate(self, left: _Part) -> _Part:
        """`[NOT] BETWEEN`, `IN` or a match of texts, behind its operand."""
        is_negated = self._take_if(Kind.NOT)
        token = self._next
        if token.kind not in _MAY_FOLLOW_NOT:
            raise Fault(
                "BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH is expected behind NOT",
                token.position,
                "to negate a comparison, write NOT (a = 1)",
            )
        self._take()
        if token.kind is Kind.BETWEEN:
            return self._between(left, is_negated)
        if token.kind is Kind.IN:
            texts = self._texts()
            if not isinstance(left.node, Property):
                raise Fault("only a property can stand before IN", left.position)
            return self._part(In(left.node, texts, is_negated), left)
        text = _text_of(self._expect(Kind.TEXT))
        return self._part(TextMatch(token.kind, left.node, text, is_negated), left)

    def _between(self, value: _Part, is_negated: bool) -> _Part:
        low = self._unary()
        self._expect(Kind.AND)
        high = self._unary()
        if is_negated:
            nodes = _relation(Kind.LESS, value, low), _relation(Kind.GREATER, value, high)
            return self._part(Or(nodes), value, low, high)
        nodes = (
            _relation(Kind.GREATER_EQUAL, value, low),
            _relation(Kind.LESS_EQUAL, value, high),
        )
        low_value, high_value = _literal_number(low.node), _literal_number(high.node)
        if low_value and high_value and compare_numbers(high_value, low_value) < 0:
            raise Fault("BETWEEN has its greater bound first", low.position)
        return self._part(And(nodes), value, low, high)

    def _texts(self) -> frozenset[str]:
        self._expect(Kind.OPEN)
        texts = [_text_of(self._expect(Kind.TEXT))]
        while self._take_if(Kind.COMMA):
            texts.append(_text_of(self._expect(Kind.TEXT)))
        self._expect(Kind.CLOSE)
        return frozenset(texts)

    def _unary(self) -> _Part:
        token = self._next
        self._nesting += 1
        if self._nesting > self._depth_max:
            raise Fault(f"the expression is nested over {self._depth_max} deep", token.position)
        if token.kind is Kind.PLUS:
            self._take()
            part = self._unary()
        elif token.kind is Kind.MINUS:
            self._take()
            operand = self._unary()
            part = self._part(Negated(operand.node), operand)
        elif token.kind is Kind.NOT:
            self._take()
            operand = _condition(self._unary())
            part = self._part(Not(operand.node), operand)
        else:
            part = self._primary()
        self._nesting -= 1
        return part._replace(position=token.position)

    def _primary(self) -> _Part:
        token = self._next
        if token.kind is Kind.OPEN:
            self._take()
            part = self._alternatives()
            self._expect(Kind.CLOSE)
            return part
        if token.kind is Kind.NAME:
            node: Node = Property(token.image)
        elif token.kind is Kind.TEXT:
            node = Literal(_text_of(token))
        elif token.kind is Kind.DECIMAL:
            node = Literal(_decimal(token))
        elif token.kind is Kind.FLOAT:
            node = Literal(_float(token))
        elif token.kind in _CONSTANTS:
            node = Literal(_CONSTANTS[token.kind])
        else:
            found = repr(token.image) if token.image else "the end"
            raise Fault(f"a property or a value is expected, not {found}", token.position)
        self._take()
        return _Part(node, token.position, 1)

    def _part(self, node: Node, *operands: _Part) -> _Part:
        depth = 1 + max(operand.depth for operand in operands)
        position = operands[0].position
        if depth > self._depth_max:
            raise Fault(f"the expression is nested over {self._depth_max} deep", position)
        return _Part(node, position, depth)


def _named(kind: Kind) -> str:
    return kind.value if kind.value.startswith("a ") else repr(kind.value)


def _condition(part: _Part) -> _Part:
    """The part where a condition must stand."""
    if is_condition(part.node):
        return part
    if isinstance(part.node, Property):
        return part._replace(node=Cast(part.node))
    raise Fault("a condition is expected here, not a value", part.position)


def _literal_number(node: Node) -> Number | None:
    value = node.value if isinstance(node, Literal) else None
    return value if isinstance(value, Number) else None


def _relation(kind: Kind, left: _Part, right: _Part) -> Relation:
    for part in (left, right):
        node = part.node
        if is_condition(node) or (isinstance(node, Literal) and _literal_number(node) is None):
            raise Fault(
                "only properties and numbers have an order",
                part.position,
                "texts, TRUE, FALSE and NULL can be compared with = and <> or IS NULL only",
            )
    return Relation(kind, left.node, right.node)


def _check_equal(left: _Part, right: _Part) -> None:
    for part in (left, right):
        if isinstance(part.node, Literal) and part.node.value is None:
            raise Fault("NULL is not compared", part.position, "write IS NULL or IS NOT NULL")
    if isinstance(left.node, Literal) and isinstance(right.node, Literal):
        is_flag = isinstance(left.node.value, bool)
        if is_flag and not isinstance(right.node.value, bool):
            raise Fault("TRUE and FALSE are not compared with texts and numbers", right.position)


def _text_of(token: Token) -> str:
    return token.image[1:-1].replace("''", "'")


def _decimal(token: Token) -> Number:
    digits = token.image.rstrip("lL")
    value = int(digits) if len(digits) <= _DECIMAL_DIGITS_MAX else LONG_MAX + 1
    if value > LONG_MAX:
        raise Fault(f"a whole number is at most {LONG_MAX}", token.position)
    return Number(NumberKind.INTEGER if value <= INTEGER_MAX else NumberKind.LONG, value)


def _float(token: Token) -> Number:
    value = float(token.image)
    if not DOUBLE_MIN <= value < float("inf"):
        raise Fault(
            "a decimal number is above 0 and at most 1.7976931348623157e308",
            token.position,
            "write 0 without a point",
        )
    return Number(NumberKind.DOUBLE, value)
