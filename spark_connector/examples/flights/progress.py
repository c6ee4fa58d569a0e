"""How far a stage is, on stderr: a bar on a terminal, a line now and then elsewhere."""

import sys
import time
from typing import Final, Self, TextIO

_BAR_WIDTH: Final = 30
_REDRAW_S: Final = 0.1
_PLAIN_STEPS: Final = 4


class Progress:
    """One stage of `total` steps. Use as a context manager; the end prints the rate."""

    def __init__(self, label: str, total: int, unit: str, out: TextIO | None = None) -> None:
        self._label = label
        self._total = total
        self._unit = unit
        self._out = sys.stderr if out is None else out
        self._on_terminal = self._out.isatty()
        self._begun = time.monotonic()
        self._drawn = 0.0
        self._told = 0
        self.done = 0

    def __enter__(self) -> Self:
        self._write(f"{self._label} ...\n" if not self._on_terminal else "")
        return self

    def __exit__(self, *failure: object) -> None:
        if failure[0] is not None:
            self._write("\n" if self._on_terminal else "")
            return
        seconds = max(time.monotonic() - self._begun, 1e-9)
        rate = f"{self.done:,} {self._unit} in {seconds:.1f} s, {self.done / seconds:,.0f}/s"
        self._write(("\r\x1b[K" if self._on_terminal else "") + f"{self._label}: {rate}\n")

    def advance(self, steps: int) -> None:
        """Count `steps` more as done."""
        self.done += steps
        if self._on_terminal:
            self._draw()
        else:
            self._tell()

    def _draw(self) -> None:
        now = time.monotonic()
        if now - self._drawn < _REDRAW_S:
            return
        self._drawn = now
        part = min(self.done / self._total, 1.0) if self._total else 1.0
        bar = "#" * int(part * _BAR_WIDTH)
        rate = self.done / max(now - self._begun, 1e-9)
        self._write(
            f"\r\x1b[K{self._label} [{bar:<{_BAR_WIDTH}}] {part:4.0%}"
            f" {self.done:,} {self._unit}, {rate:,.0f}/s"
        )

    def _tell(self) -> None:
        reached = _PLAIN_STEPS * self.done // max(self._total, 1)
        if self._told < reached < _PLAIN_STEPS:
            self._told = reached
            self._write(f"{self._label}: {self.done:,} of {self._total:,} {self._unit}\n")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
