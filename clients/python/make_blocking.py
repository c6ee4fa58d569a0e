"""Makes most modules of `curlew_client/blocking` from those in `aio`, by unasync.

    python clients/python/make_blocking.py           writes them
    python clients/python/make_blocking.py --check   says whether they are fresh

unasync takes `async` and `await` away and renames `Async…`; ruff brings the lines into form.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import unasync

SOURCE = Path(__file__).parent / "src" / "curlew_client"
MADE = ("admin.py", "pool.py", "requesting.py", "sending.py", "transactions.py")
NOTE = "# Made from aio/{name} by make_blocking.py. Change that, and run it.\n"
RENAMED = {
    "AsyncAdmin": "Admin",
    "AsyncClient": "Client",
    "AsyncConnection": "BlockingConnection",
    "AsyncPool": "BlockingPool",
    "AsyncSender": "BlockingSender",
    "AsyncSlots": "BlockingSlots",
    "AsyncTransaction": "Transaction",
    "aclose": "close",
    "aio": "blocking",
}


def make(directory: Path) -> None:
    """Write the modules into a directory."""
    rule = unasync.Rule(str(SOURCE / "aio"), str(directory), additional_replacements=RENAMED)
    unasync.unasync_files([str(SOURCE / "aio" / name) for name in MADE], [rule])
    for name in MADE:
        path = directory / name
        path.write_text(NOTE.format(name=name) + path.read_text())
    ruff = [sys.executable, "-m", "ruff"]
    config = ["--config", str(SOURCE.parents[3] / "pyproject.toml")]
    files = [str(directory / name) for name in MADE]
    subprocess.run([*ruff, "format", "--quiet", *config, *files], check=True)


def stale() -> list[str]:
    """The modules that are not what they would be made as now."""
    with tempfile.TemporaryDirectory() as directory:
        make(Path(directory))
        return [
            name
            for name in MADE
            if (Path(directory) / name).read_text() != (SOURCE / "blocking" / name).read_text()
        ]


if __name__ == "__main__":
    if "--check" not in sys.argv:
        make(SOURCE / "blocking")
    elif found := stale():
        sys.exit(f"not fresh: {', '.join(found)}; run python clients/python/make_blocking.py")
