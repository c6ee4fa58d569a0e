"""What to try instead of a path that leads nowhere. Pure.

Paths are compared segment by segment with the templates of the operations: names in a path may be
anything, the fixed segments have to be nearly those of the template.
"""

from collections.abc import Iterable
from difflib import SequenceMatcher
from typing import Final

_NEARLY: Final = 0.75
"""Ratio from which on two segments are taken for the same one misspelt: `recieve`, `topic`."""
_PLACES: Final = (
    "the page is at /ui, the API's is at /docs, and all operations are in /openapi.json"
)


def hint_of_path(path: str, templates: Iterable[str]) -> str:
    """The path that was meant, if it can be told, or else where the operations are."""
    if path.startswith("/v1/") and path.endswith("/"):
        return "leave out the '/' at the end"
    segments = path.split("/")
    found = [each for each in templates if each.count("/") + 1 == len(segments)]
    best = max(found, key=lambda each: _likeness(segments, each), default="")
    if not best or _likeness(segments, best) < _NEARLY:
        return _PLACES
    meant = [
        given if template.startswith("{") and not template.partition("}")[2] else template
        for given, template in zip(segments, best.split("/"), strict=True)
    ]
    return f"did you mean {'/'.join(meant)!r}?"


def _likeness(segments: list[str], template: str) -> float:
    """That of the least similar fixed segment."""
    pairs = zip(segments, template.split("/"), strict=True)
    return min(
        (
            SequenceMatcher(None, given, fixed, autojunk=False).ratio()
            for given, fixed in pairs
            if fixed and not fixed.startswith("{")
        ),
        default=0.0,
    )
