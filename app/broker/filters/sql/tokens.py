"""Words of a SQL92 filter: one regular expression, the longest word first. Pure.

The words are those of RocketMQ's selector language: keywords in any case, names of ASCII letters,
digits, `_` and `$`, texts in single quotes with `''` for a quote, decimal and floating-point
numbers, `--` comments up to the end of the line, `/* */` comments. Linear in the length: no
alternative can match the same characters in two ways.
"""

import re
from enum import StrEnum
from typing import Final, NamedTuple

from app.broker.filters.sql.faults import Fault


class Kind(StrEnum):
    """What a word is. Keywords and signs are kinds of their own."""

    NOT = "NOT"
    AND = "AND"
    OR = "OR"
    BETWEEN = "BETWEEN"
    IN = "IN"
    TRUE = "TRUE"
    FALSE = "FALSE"
    NULL = "NULL"
    IS = "IS"
    CONTAINS = "CONTAINS"
    STARTSWITH = "STARTSWITH"
    ENDSWITH = "ENDSWITH"
    EQUAL = "="
    NOT_EQUAL = "<>"
    GREATER = ">"
    GREATER_EQUAL = ">="
    LESS = "<"
    LESS_EQUAL = "<="
    OPEN = "("
    COMMA = ","
    CLOSE = ")"
    PLUS = "+"
    MINUS = "-"
    DECIMAL = "a number"
    FLOAT = "a decimal number"
    TEXT = "a text"
    NAME = "a property name"
    END = "the end"


class Token(NamedTuple):
    """One word, as written, and where it begins."""

    kind: Kind
    image: str
    position: int


_KEYWORDS: Final = {
    kind.value: kind for kind in Kind if kind.value.isalpha() and kind.value.isupper()
}
_SIGNS: Final = {kind.value: kind for kind in Kind if not kind.value[0].isalpha()}
_WORD: Final = re.compile(
    r"""
      (?P<skip>[ \t\n\r\f]+ | --[^\n\r]*(?:\r\n|\n|\r) | /\*[^*]*\*(?:\*|[^*/][^*]*\*)*/)
    | (?P<float>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)? | \.[0-9]+(?:[eE][+-]?[0-9]+)?
        | [0-9]+[eE][+-]?[0-9]+)
    | (?P<decimal>0 | [1-9][0-9]*[lL]?)
    | (?P<text>'(?:''|[^'])*')
    | (?P<name>[A-Za-z_$][A-Za-z0-9_$]*)
    | (?P<sign><>|>=|<=|[=<>(),+-])
    """,
    re.VERBOSE,
)
_OPERANDS: Final = frozenset(
    {
        Kind.NAME,
        Kind.TEXT,
        Kind.DECIMAL,
        Kind.FLOAT,
        Kind.TRUE,
        Kind.FALSE,
        Kind.NULL,
        Kind.CLOSE,
    }
)
"""Words behind which no sign may stand: there is no arithmetic."""
_KINDS: Final = {"float": Kind.FLOAT, "decimal": Kind.DECIMAL, "text": Kind.TEXT}
_HINTS: Final = {
    "!": "write <> for 'not equal', NOT for 'not'",
    '"': "texts are in single quotes",
    "'": "a text ends with a single quote; inside, write two for one",
    "/": "a comment begins with /* and ends with */; there is no arithmetic",
    "|": "write OR between conditions",
    "&": "write AND between conditions",
}


def tokens_of(text: str) -> list[Token]:
    """All words of `text` and an END after them. Raises `Fault` at what is no word."""
    tokens: list[Token] = []
    position, length = 0, len(text)
    while position < length:
        match = _WORD.match(text, position)
        if match is None:
            character = text[position]
            raise Fault(f"{character!r} is not expected", position, _HINTS.get(character))
        image, group = match[0], match.lastgroup
        if group == "name":
            kind = _KEYWORDS.get(image.upper(), Kind.NAME)
            tokens.append(Token(kind, image, position))
        elif group == "sign":
            if text.startswith("--", position) and tokens and tokens[-1].kind in _OPERANDS:
                break  # a comment that no line break ends; elsewhere two signs of a number
            tokens.append(Token(_SIGNS[image], image, position))
        elif group is not None and group != "skip":
            tokens.append(Token(_KINDS[group], image, position))
        position = match.end()
    tokens.append(Token(Kind.END, "", length))
    return tokens
