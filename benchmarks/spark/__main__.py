"""`python -m benchmarks.spark`, which `make bench-spark` runs."""

import argparse
import tempfile
from pathlib import Path

from benchmarks.servers import node
from benchmarks.spark import against, ceilings


def main() -> None:
    """Run with the numbers of the command line."""
    name = "python -m benchmarks.spark"
    parser = argparse.ArgumentParser(prog=name, description=ceilings.__doc__)
    parser.add_argument("--rows", type=int, help="of each job (1,000,000; beside a commit 500,000)")
    parser.add_argument("--rounds", type=int, default=6, help="in turn, behind some that warm up")
    parser.add_argument("--against", metavar="COMMIT", help="compare with that one instead")
    parser.add_argument("--body", type=int, default=1024, help="bytes of a message, with --against")
    parser.add_argument("--only", default="", help="jobs whose name has this text, with --against")
    parser.add_argument("--mixed", action="store_true", help="this connector with that node, too")
    given = parser.parse_args()
    if given.against is not None:
        rows = given.rows or 500_000
        against.compare(
            given.against, rows, given.body, given.rounds, given.only, mixed=given.mixed
        )
        return
    with tempfile.TemporaryDirectory(prefix="curlew-spark-") as name, node() as (url, _):
        rows = given.rows or 1_000_000
        print("\n".join(ceilings.measure(rows, given.rounds, Path(name), url)))


if __name__ == "__main__":
    main()
