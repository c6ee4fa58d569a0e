"""The root of the error tree: what every error says of itself."""

from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

Outcome = Literal["not_stored", "stored", "unknown"]

Field = int | str | bool | list[str] | None
"""An extra member of a problem document."""


class CurlewError(Exception):
    """Root of the tree. `detail` says what is wrong, `hint` what to do about it.

    `fields` are extra members of the problem document; `pointer` is a JSON pointer into the body.
    """

    code: ClassVar[str] = "INTERNAL_SERVER_ERROR"
    title: ClassVar[str] = "The request failed"
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        detail: str,
        *,
        hint: str | None = None,
        fields: Mapping[str, Field] | None = None,
        pointer: str | None = None,
        outcome: Outcome | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.hint = hint
        self.fields = dict(fields or {})
        self.pointer = pointer
        self.outcome = outcome
        self.retry_after_s = retry_after_s
        self.suggest: Callable[[Callable[[str, str], bool]], str | None] | None = None
        """A better hint; it asks by kind and name whether the caller may know of a thing."""
