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
ROOMS = (
    *("access", "admin", "asking", "clients", "dead_letters", "delayed", "groups", "messages"),
    *("offsets", "service", "topics", "transactions"),
)
MADE = (
    *("pool.py", "requesting.py", "sending.py", "transactions.py"),
    *("admin/__init__.py", *(f"admin/{room}.py" for room in ROOMS)),
)
NOTE = "# Made from aio/{name} by make_blocking.py. Change that, and run it.\n"
RENAMED = {
    "AsyncAccess": "Access",
    "AsyncAdmin": "Admin",
    "AsyncAsking": "Asking",
    "AsyncClient": "Client",
    "AsyncClients": "Clients",
    "AsyncConnection": "BlockingConnection",
    "AsyncDeadLetters": "DeadLetters",
    "AsyncDelayed": "Delayed",
    "AsyncGroups": "Groups",
    "AsyncMessages": "Messages",
    "AsyncOffsets": "Offsets",
    "AsyncPool": "BlockingPool",
    "AsyncSender": "BlockingSender",
    "AsyncService": "Service",
    "AsyncSlots": "BlockingSlots",
    "AsyncTopics": "Topics",
    "AsyncTransaction": "Transaction",
    "AsyncTransactions": "Transactions",
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
