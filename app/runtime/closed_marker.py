"""Two files beside the store: that this node asks for keys, and how many changes of who may do what
it has seen.

A lost database or an old copy of one has no principals, or those that were revoked since: it must
neither open a node that was closed nor revive a key.
"""

from pathlib import Path
from typing import Final

from app.runtime.private_files import make_private_directory

_NAME: Final = "closed"
_VERSION: Final = "access-version"
_TEXT: Final = "This node asks for API keys. `curlew security open` takes this back.\n"


def is_closed_here(data_dir: Path) -> bool:
    """Whether the node of this data directory was ever closed."""
    return (data_dir / _NAME).exists()


def remember_closed(data_dir: Path) -> None:
    """From now on it was."""
    if not is_closed_here(data_dir):
        make_private_directory(data_dir)
        (data_dir / _NAME).write_text(_TEXT, encoding="utf-8")


def remembered_version(data_dir: Path) -> int:
    """The newest version of who may do what that was seen here; 0: none, or it cannot be read."""
    try:
        text = (data_dir / _VERSION).read_text(encoding="ascii").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        return 0
    return int(text) if text.isdigit() else 0


def remember_version(data_dir: Path, version: int) -> None:
    """It was seen. Written beside and renamed, so that a crash leaves one of both."""
    if version > remembered_version(data_dir):
        make_private_directory(data_dir)
        written = data_dir / f"{_VERSION}.new"
        written.write_text(f"{version}\n", encoding="ascii")
        written.replace(data_dir / _VERSION)


def forget_closed(data_dir: Path) -> None:
    """It was not."""
    (data_dir / _NAME).unlink(missing_ok=True)
