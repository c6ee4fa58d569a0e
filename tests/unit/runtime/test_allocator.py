"""Freed memory is kept: measured in page faults, in processes of their own."""

import platform
import subprocess
import sys

import pytest

_FAULTS = """
import resource
{tune}
for _ in range(50):
    pieces = [b"x" * (4 << 20) for _ in range(3)]
    del pieces
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""
_TUNE = "from app.runtime.allocator import keep_freed_memory; assert keep_freed_memory()"
_PAGES = 50 * (12 << 20) // 4096


def _faults(tune: str) -> int:
    program = _FAULTS.format(tune=tune)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the knobs are glibc's")
def test_large_pieces_are_paid_for_once() -> None:
    # The control: without it, the larger part of what is allocated is new to the process each time.
    assert _faults("") > _PAGES // 2
    assert _faults(_TUNE) < _PAGES // 5
