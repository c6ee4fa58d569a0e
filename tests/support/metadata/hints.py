"""What an error suggests to a reader who may know of everything."""

from app.domain.errors import CurlewError


def hint_of(error: CurlewError) -> str | None:
    """Its better hint, if it has one."""
    return error.hint if error.suggest is None else error.suggest(lambda *_: True)
