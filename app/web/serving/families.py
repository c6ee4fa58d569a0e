"""How pages are registered: a family of pages has an entry in the navigation and its handlers.

A handler takes a `Page` and gives a `Shown` or a `Moved`; what the API refuses it need not catch.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from app.web.serving.page import Outcome, Page

Handler = Callable[[Page], Awaitable[Outcome]]
Decorator = Callable[[Handler], Handler]

LIVE_S: Final = 5.0
"""The statistics have a row for each 5 seconds."""


@dataclass(frozen=True, slots=True)
class View:
    """A page or an act: what answers at a path."""

    path: str
    handler: Handler
    method: str = "GET"
    live_s: float | None = None
    """How often it is shown anew while it is open; None: it stays as it is."""


@dataclass(frozen=True, slots=True)
class Family:
    """Pages that belong together. Without a `label` it has no entry in the navigation."""

    name: str
    label: str = ""
    """English; a template says it in the reader's language."""
    path: str = ""
    """Of its first page, below the root: `topics`."""
    key: str = ""
    """`g` and this letter lead there."""
    section: str = ""
    """English; families with the same one stand together."""
    is_for_anybody: bool = False
    """Whether no name is asked for."""
    views: list[View] = field(default_factory=list)

    def page(self, path: str, *, live_s: float | None = None) -> Decorator:
        """What GET shows at `path`, `/topics/{topic}`. One with `live_s` has a live part."""
        return self._add("GET", path, live_s)

    def act(self, path: str) -> Decorator:
        """What POST does at `path`; its form is in `page.form`."""
        return self._add("POST", path, None)

    def _add(self, method: str, path: str, live_s: float | None) -> Decorator:
        def added(handler: Handler) -> Handler:
            self.views.append(View(path, handler, method, live_s))
            return handler

        return added
