"""A directory that is read and never written: somebody else's store, or ours while a node runs."""

import os
from pathlib import Path

from typing_extensions import override

from app.store.fs.files import File, Lock, OsFile, OsFiles


class ReadOnlyFiles(OsFiles):
    """`OsFiles` whose files are opened for reading, and which refuses every change."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.root = root

    @override
    def open(self, path: str, *, create: bool = False) -> File:
        assert not create
        return OsFile(os.open(self.root / path, os.O_RDONLY | os.O_CLOEXEC))

    @override
    def make_directory(self, directory: str) -> None:
        raise PermissionError(f"{self.root} is opened for reading")

    @override
    def remove(self, path: str) -> None:
        raise PermissionError(f"{self.root} is opened for reading")

    @override
    def replace(self, source: str, target: str) -> None:
        raise PermissionError(f"{self.root} is opened for reading")

    @override
    def lock(self, path: str) -> Lock:
        raise PermissionError(f"{self.root} is opened for reading")
