"""What the API says to people, by its sources: titles of problems, hints, and why something is so.
Their translations stand in `api.po`; `{}` is what is filled in (`app.web.rendering.api_texts`)."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final, get_args

from app.api.http.errors import error_codes
from app.broker.figures.clients import Kind
from app.broker.health import _HINTS
from app.broker.insight.delivery_status import DeliveryState
from app.broker.insight.lag import DAMAGED, NOT_BEGUN
from app.broker.tracing.trace_notes import TraceKind
from app.domain.shortages import HINTS, Shortage

APP: Final = Path(__file__).parents[3] / "app"
SAID_IN: Final[dict[str, frozenset[str]]] = {
    "broker/insight/delivery_status.py": frozenset({"DeliveryStatus"}),
    "broker/health.py": frozenset({"condition"}),
    "node_parts/replica_conditions.py": frozenset({"condition"}),
}
"""Modules, and the calls in them whose texts are shown."""
NAMED_IN: Final[dict[str, frozenset[str]]] = {
    "broker/health.py": frozenset({"detail"}),
    "node_parts/replica_conditions.py": frozenset({"detail"}),
    "replica/replica_status.py": frozenset({"why"}),
}
"""Modules, and the variables in them that get such texts."""


def api_texts() -> Iterator[str]:
    """All of them; some more than once."""
    yield from (each.title for each in error_codes())
    yield from _HINTS.values()
    yield from HINTS.values()
    yield from (each.value for each in Shortage)
    yield from (NOT_BEGUN, DAMAGED)
    yield from (each.value for each in DeliveryState)
    yield from (each.name.lower() for each in TraceKind)
    yield from get_args(Kind)
    for path, calls in SAID_IN.items():
        for node in ast.walk(ast.parse((APP / path).read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in calls:
                for given in [*node.args, *(each.value for each in node.keywords)]:
                    yield from texts_of(given)
    for path, names in NAMED_IN.items():
        for node in ast.walk(ast.parse((APP / path).read_text())):
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in names:
                yield from texts_of(node.value)


def texts_of(node: ast.expr) -> Iterator[str]:
    """The texts that an expression may be, each with `{}` for what is filled in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        parts = [each.value if isinstance(each, ast.Constant) else "{}" for each in node.values]
        text = "".join(map(str, parts))
        if any(each.isalpha() for each in text.replace("{}", "")):
            yield text
    elif isinstance(node, ast.IfExp):
        yield from texts_of(node.body)
        yield from texts_of(node.orelse)
    elif isinstance(node, ast.BoolOp):
        for each in node.values:
            yield from texts_of(each)
