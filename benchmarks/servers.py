"""Child processes to be measured: a node with an empty store, or a baseline."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_ADDRESS = re.compile(r"page +(http://\S+)/ui")


@contextmanager
def running(*arguments: str) -> Iterator[tuple[str, int]]:
    """Run `python -m ARGUMENTS` until the block ends: (address, process id)."""
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if match := _ADDRESS.search(line):
                yield match[1], process.pid
                break
        else:
            raise RuntimeError(f"{' '.join(arguments)} did not start")
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


@contextmanager
def node(flush: str = "async") -> Iterator[tuple[str, int]]:
    """A fresh node whose topics flush as named."""
    with (
        tempfile.TemporaryDirectory(prefix="curlew-bench-") as directory,
        running(
            "app.cli", "dev", "--port", "0", "--data-dir", directory, "--flush", flush
        ) as found,
    ):
        yield found
