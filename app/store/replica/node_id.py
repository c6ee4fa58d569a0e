"""The node's id: random, made once, kept in the file `node-id` of its data directory.

It names the node among the replicas of its shard, so it goes where the directory goes: an empty
disk is another node. (A lone node is named after its store.)

The file also has its own inode and the generation of that, by which a copy is told from the
original: a move within a file system keeps both, a copy and a backup that was brought back do not.
(A backup that is brought back in place often gets the same inode again, on ext4 nearly always; the
file system gives that another generation.) A copy may have lost what the original has acknowledged
since, so it must come in a new incarnation, and only then counts as the original (`settle`). An
image of a whole file system cannot be told apart.
"""

import fcntl
import os
import re
import secrets
import struct
import sys
from pathlib import Path
from typing import Final, NamedTuple

from app.runtime.private_files import make_private_directory

NODE_ID_BYTES: Final = 8

_NAME: Final = "node-id"
_TEXT: Final = re.compile(r"([0-9a-f]{16}) inode ([0-9]{1,20}\.[0-9]{1,10})\n")
_PRIVATE: Final = 0o600

_GET_GENERATION: Final = 0x80087601 if struct.calcsize("l") == 8 else 0x80047601
"""FS_IOC_GETVERSION of linux/fs.h; the answer is 32 bits, whatever the number says."""


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
            text, inode = file.read(), _inode_of(file.fileno())
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
    return NodeId(found[1], is_copy=found[2] != inode)


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
        file.write(f"{value} inode {_inode_of(file.fileno())}\n")
        file.flush()
        os.fsync(file.fileno())
    written.replace(data_dir / _NAME)
    directory = os.open(data_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _inode_of(descriptor: int) -> str:
    """The file's inode and its generation: 0 where the file system has none to tell."""
    answer = bytearray(struct.calcsize("l"))
    try:
        fcntl.ioctl(descriptor, _GET_GENERATION, answer)
    except OSError:
        answer = bytearray(len(answer))
    generation = int.from_bytes(answer[:4], sys.byteorder)
    return f"{os.fstat(descriptor).st_ino}.{generation}"
