"""The file beside the store that says: this node asks for keys, whatever its database says.

A lost database or an old copy of one has no principals; it must not open a node that was closed.
"""

from pathlib import Path
from typing import Final

from app.runtime.private_files import make_private_directory

_NAME: Final = "closed"
_TEXT: Final = "This node asks for API keys. `curlew security open` takes this back.\n"


def is_closed_here(data_dir: Path) -> bool:
    """Whether the node of this data directory was ever closed."""
    return (data_dir / _NAME).exists()


def remember_closed(data_dir: Path) -> None:
    """From now on it was."""
    if not is_closed_here(data_dir):
        make_private_directory(data_dir)
        (data_dir / _NAME).write_text(_TEXT, encoding="utf-8")


def forget_closed(data_dir: Path) -> None:
    """It was not."""
    (data_dir / _NAME).unlink(missing_ok=True)
