"""The node's id: random, made once, kept in the file `node-id` of its data directory.

It names the node among the replicas of its shard, so it goes where the directory goes: an empty
disk is another node. (A lone node is named after its store.)

The file also has its own inode, by which a copy is told from the original: a move within a file
system keeps it, a copy and a backup that was brought back do not. A copy may have lost what the
original has acknowledged since, so it must come in a new incarnation, and only then counts as the
original (`settle`). An image of a whole file system cannot be told apart.
"""

import os
import re
import secrets
from pathlib import Path
from typing import Final, NamedTuple

from app.runtime.private_files import make_private_directory

NODE_ID_BYTES: Final = 8

_NAME: Final = "node-id"
_TEXT: Final = re.compile(r"([0-9a-f]{16}) inode ([0-9]{1,20})\n")
_PRIVATE: Final = 0o600


class NodeIdUnreadable(Exception):
    """The file is not one of ours, or damaged; the text says what to do."""


class NodeId(NamedTuple):
    """Of one data directory."""

    value: str
    """Sixteen hexadecimal digits."""
    is_copy: bool
    """Whether the directory was copied, or brought back, since the id was kept here."""


def node_id_of(data_dir: Path) -> NodeId:
    """The id, made where there is none; on the medium behind this. The caller has the directory to
    itself. Raises `NodeIdUnreadable` or `OSError`."""
    path = data_dir / _NAME
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            text, inode = file.read(), os.fstat(file.fileno()).st_ino
    except FileNotFoundError:
        value = secrets.token_hex(NODE_ID_BYTES)
        _keep(data_dir, value)
        return NodeId(value, is_copy=False)
    found = _TEXT.fullmatch(text)
    if found is None:
        raise NodeIdUnreadable(
            f"{path} is damaged: who this node is cannot be told. Write the file anew from a "
            "backup, or delete it: then the node is a new one, and the former one is to be taken "
            "out of its shard"
        )
    return NodeId(found[1], is_copy=int(found[2]) != inode)


def settle(data_dir: Path, node_id: NodeId) -> None:
    """From now on the copy counts as the original: its incarnation is a new one, and kept."""
    if node_id.is_copy:
        _keep(data_dir, node_id.value)


def _keep(data_dir: Path, value: str) -> None:
    """Write beside and rename, so that a crash leaves one of both, with its own inode in it."""
    make_private_directory(data_dir)
    written = data_dir / f"{_NAME}.new"
    written.unlink(missing_ok=True)
    descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{value} inode {os.fstat(file.fileno()).st_ino}\n")
        file.flush()
        os.fsync(file.fileno())
    written.replace(data_dir / _NAME)
    directory = os.open(data_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
