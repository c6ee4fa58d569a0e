"""Freed memory is kept: measured in page faults, in processes of their own."""

import platform
import subprocess
import sys

import pytest

from app.runtime import allocator

_FAULTS = """
import resource
{tune}
for _ in range(50):
    pieces = [b"x" * (4 << 20) for _ in range(3)]
    del pieces
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""
_IS_GLIBC = platform.libc_ver()[0] == "glibc"
_TUNE = (
    "from app.runtime.allocator import keep_freed_memory; "
    f"assert keep_freed_memory() is {_IS_GLIBC}"
)
_PAGES = 50 * (12 << 20) // 4096


def _faults(tune: str) -> int:
    program = _FAULTS.format(tune=tune)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return int(done.stdout)


def test_large_pieces_are_paid_for_once() -> None:
    untuned, tuned = _faults(""), _faults(_TUNE)
    if not _IS_GLIBC:
        # There is no such knob, `_TUNE` asserts that it says so, and nothing has changed.
        assert abs(tuned - untuned) < _PAGES // 5
        return
    # The control: without it, the larger part of what is allocated is new to the process each time.
    assert untuned > _PAGES // 2
    assert tuned < _PAGES // 5


def test_where_the_allocator_is_another_one_nothing_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _name: object())
    assert not allocator.keep_freed_memory()
