"""The one rule of conditional changes (`If-Match`). Pure."""

from app.domain.errors import PreconditionFailed


def check_version(what: str, present: int, if_version: int | None) -> None:
    """Raise `PreconditionFailed` unless `present` is the version asked for.

    What does not exist has version 0, so `if_version=0` asks to create and never to replace.
    """
    if if_version is None or if_version == present:
        return
    state = f"is at version {present}" if present else "does not exist"
    raise PreconditionFailed(
        f"{what} {state}; the request asks for version {if_version}",
        hint="read it again, apply your change to what you find, and send its version",
        fields={"version": present},
    )
