"""Files that nobody but their owner reads: messages are in them, and keys that sign handles.

What the process makes is private by its umask, which the command line sets first of all. What an
earlier version or another tool made wider is narrowed when a node opens, as far as it is ours: a
directory that an operator made stays as it is, and so do the files of others beside ours.
"""

import logging
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_LOG: Final = logging.getLogger(__name__)

PRIVATE_UMASK: Final = 0o077
PRIVATE_DIRECTORY: Final = 0o700
_OTHERS: Final = 0o077
"""The bits of a mode that let anybody but the owner in."""
_SQLITE_SUFFIXES: Final = ("", "-wal", "-shm", "-journal")


def keep_new_files_private() -> None:
    """From here on, what this process and its children make is their owner's alone."""
    os.umask(PRIVATE_UMASK)


def make_private_directory(path: Path) -> None:
    """Make `path` for its owner alone, and its parents as usual; one that is there stays."""
    if not path.parent.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(PRIVATE_DIRECTORY, exist_ok=True)


def files_of_sqlite(database: Path) -> list[Path]:
    """The file of a database, and those that SQLite puts beside it."""
    return [database.with_name(database.name + suffix) for suffix in _SQLITE_SUFFIXES]


def everything_in(directory: Path) -> Iterable[Path]:
    """The directory and all below it; nothing when it is not there. No links to elsewhere."""
    if directory.is_dir():
        yield directory
    for parent, directories, files in os.walk(directory):
        below = [Path(parent, name) for name in (*directories, *files)]
        yield from (path for path in below if not path.is_symlink())


def narrow(paths: Iterable[Path]) -> None:
    """Take from all but the owner what they may do with these files and directories.

    Says so once in the log, and warns of what belongs to another user and cannot be narrowed.
    """
    narrowed: list[Path] = []
    for path in paths:
        try:
            mode = path.stat().st_mode
            if mode & _OTHERS:
                path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
                narrowed.append(path)
        except FileNotFoundError:
            continue
        except PermissionError:
            _LOG.warning(
                "%s may be read or written by others and belongs to another user; its owner "
                "should run: chmod go= %s",
                path,
                path,
            )
    if narrowed:
        more = f" and {len(narrowed) - 1} more" if len(narrowed) > 1 else ""
        _LOG.warning(
            "%s%s could be read or written by other users; now only by their owner",
            narrowed[0],
            more,
        )
