"""Child processes to be measured: a node with an empty store, or a baseline."""

import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import trustme

HERE = Path(__file__).parents[1]
"""The repository."""
_ADDRESS = re.compile(r"page +(https?://\S+)/ui")


@contextmanager
def running(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> Iterator[tuple[str, int]]:
    """Run `python -m ARGUMENTS` until the block ends: (address, process id)."""
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
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
def node(flush: str = "async", *, tls: bool = False) -> Iterator[tuple[str, int]]:
    """A fresh node whose topics flush as named."""
    with tempfile.TemporaryDirectory(prefix="curlew-bench-") as directory:
        flags = ["--port", "0", "--data-dir", f"{directory}/data", "--flush", flush]
        if tls:
            flags += _certificate(Path(directory))
        with running("app.cli", "dev", *flags) as found:
            yield found


@contextmanager
def code_of(commit: str, *parts: str) -> Iterator[Path]:
    """A directory with these folders of the repository as they are in the commit."""
    with tempfile.TemporaryDirectory() as directory:
        packed = subprocess.run(
            ["git", "archive", commit, *parts], cwd=HERE, stdout=subprocess.PIPE, check=True
        )
        with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
            archive.extractall(directory, filter="data")
        yield Path(directory)


def _certificate(directory: Path) -> list[str]:
    """The flags for a certificate of this machine, of an elliptic curve as recommended."""
    issued = trustme.CA().issue_cert("127.0.0.1")
    key, chain = directory / "key.pem", directory / "cert.pem"
    key.write_bytes(issued.private_key_pem.bytes())
    key.chmod(0o600)
    chain.write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
    return ["--tls-cert-file", str(chain), "--tls-key-file", str(key)]
