"""The client processes of a history, each with a file of what it saw."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.history.events import Event, decode_events
from tests.support.nodes.node import ROOT

INVISIBLE_MS: Final = 1_000
STOP_SECONDS: Final = 60.0


class Workers:
    """By name."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(
        self, role: str, name: str, port: int, module: str, prefix: Sequence[str] = ()
    ) -> None:
        """Start one that asks `port` of 127.0.0.1; `prefix` is a command that becomes its."""
        seed = len(self._processes)
        arguments = [role, port, self._file(name), name, seed, INVISIBLE_MS]
        self._processes[name] = subprocess.Popen(
            [*prefix, sys.executable, "-m", module, *map(str, arguments)], cwd=ROOT
        )

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def recorded(self) -> int:
        """Lines that they have written so far."""
        files = [self._file(name) for name in self._processes]
        return sum(file.read_bytes().count(b"\n") for file in files if file.exists())

    def so_far(self, *names: str) -> list[Event]:
        """What these workers, or all, have written so far."""
        return [event for name in names or self._processes for event in self.since(name, 0)[0]]

    def since(self, name: str, place: int) -> tuple[list[Event], int]:
        """What this worker has written behind a place in its file; and the place behind that."""
        file = self._file(name)
        if not file.exists():
            return [], place
        with file.open("rb") as opened:
            opened.seek(place)
            text = opened.read()
        return decode_events(text), place + text.rfind(b"\n") + 1

    def end(self, *names: str) -> None:
        """Let them finish their request and end; all of them without names."""
        for name in names or tuple(self._processes):
            process = self._processes[name]
            if process.poll() is None:
                process.terminate()
            assert process.wait(STOP_SECONDS) == 0, f"worker {name} failed"

    def kill(self) -> None:
        """All that still run."""
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
                process.wait(STOP_SECONDS)

    def _file(self, name: str) -> Path:
        return self._directory / f"{name}.jsonl"
