"""The place of a broadcast consumer, in a file: what a crash leaves is what was saved last.

A save writes another file, syncs it, and renames it over the old one. One consumer has a file; a
lock beside it keeps others off, in this process and in others of the machine.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from curlew_client.assigned.records import QueueName

fcntl: Any = None
with suppress(ImportError):  # where there is none, nobody is kept off
    import fcntl

VERSION: Final = 1


class OffsetFile:
    """`places`: where each queue goes on, as it was saved last. Close it."""

    def __init__(self, path: Path, group: str, namespace: str | None = None) -> None:
        """Raises `ValueError` when it is another group's or namespace's, damaged, or in use."""
        self._path = path
        self._group = group
        self._namespace = namespace
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(path.with_name(path.name + ".lock"), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            self._claim()
            self.places = self._load()
        except BaseException:
            self.close()
            raise

    def _claim(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(
                f"another consumer keeps its offsets in {self._path}; give each one of its own"
            ) from None

    def _load(self) -> dict[QueueName, int]:
        try:
            text = self._path.read_text()
        except FileNotFoundError:
            return {}
        try:
            shown: dict[str, Any] = json.loads(text)
            group, version = shown["group"], shown["version"]
            namespace = shown.get("namespace")
            found = {
                QueueName(topic, int(queue_id)): int(offset)
                for topic, offsets in shown["offsets"].items()
                for queue_id, offset in offsets.items()
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{self._path} is no offset file ({error}); remove it, and the group's start counts"
            ) from None
        if version != VERSION:
            raise ValueError(f"{self._path} is of version {version}; this client knows {VERSION}")
        if group != self._group:
            raise ValueError(f"{self._path} has the offsets of group {group!r}")
        if namespace != self._namespace:
            place = "no namespace" if namespace is None else f"namespace {namespace!r}"
            raise ValueError(f"{self._path} has the offsets of a group of {place}")
        return found

    def save(self, places: Mapping[QueueName, int]) -> None:
        """Write it, durably. Blocks."""
        if places == self.places and self._path.exists():
            return
        offsets: dict[str, dict[str, int]] = {}
        for (topic, queue_id), offset in sorted(places.items()):
            offsets.setdefault(topic, {})[str(queue_id)] = offset
        shown: dict[str, Any] = {"version": VERSION, "group": self._group, "offsets": offsets}
        if self._namespace is not None:
            shown["namespace"] = self._namespace
        fresh = self._path.with_name(self._path.name + ".new")
        with fresh.open("w") as file:
            json.dump(shown, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        directory = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        self.places = dict(places)

    def close(self) -> None:
        """Let others have it."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
