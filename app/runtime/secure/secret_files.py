"""Secrets that an operator keeps in files of their own: read whole, bounded, never shown.

A file that others on the machine may read keeps no secret, so it is refused. Its group may read it
only where it is root's, as PostgreSQL has it: so certificates of a package's group are installed.
"""

import os
import stat
from pathlib import Path
from typing import Final

SECRET_FILE_BYTES_MAX: Final = 64 * 1024
_ROOT: Final = 0


class UnusableSecretFile(Exception):
    """A file of a secret that is missing, too long, or that others may read; the text says so."""


def read_secret(path: Path, setting: str) -> bytes:
    """What the file of the setting holds. Raises `UnusableSecretFile`, which never quotes it."""
    try:
        with path.open("rb") as file:
            _refuse_readable(os.fstat(file.fileno()), path, setting)
            content = file.read(SECRET_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UnusableSecretFile(
            f"{setting} = {path}: {error.strerror}; give the path of a file that the user of this "
            "node may read"
        ) from error
    if len(content) > SECRET_FILE_BYTES_MAX:
        raise UnusableSecretFile(f"{setting} = {path} has over {SECRET_FILE_BYTES_MAX} bytes")
    return content


def write_secret(path: Path, content: bytes) -> None:
    """Make the file, which is its owner's alone, and write it to the medium.

    Raises `FileExistsError` for one that is there, and `OSError`.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refuse_readable(status: os.stat_result, path: Path, setting: str) -> None:
    others = stat.S_IRWXO | (stat.S_IWGRP if status.st_uid == _ROOT else stat.S_IRWXG)
    if stat.S_ISREG(status.st_mode) and status.st_mode & others:
        raise UnusableSecretFile(
            f"{setting} = {path} may be read or written by others; run: chmod go= {path}"
        )
