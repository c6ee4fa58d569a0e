"""Run the rows, print the table, write `benchmarks/latest.json`."""

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from statistics import median

from benchmarks.rows import ROWS
from benchmarks.store_rows import store_rows

LATEST = Path(__file__).with_name("latest.json")


def main() -> None:
    """Medians of several runs, baseline and ours in turn."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="runs of each row (3)")
    parser.add_argument("--seconds", type=float, default=3, help="length of a measurement (3)")
    parser.add_argument("--only", default="", help="rows whose name has this text")
    parser.add_argument(
        "--large", action="store_true", help="10 M messages and 10 GiB in the store's rows"
    )
    options = parser.parse_args()
    results: list[dict[str, object]] = []
    print(f"{os.cpu_count()} cores, shared by server and load; Python {platform.python_version()}")
    print(f"{'case':42} {'baseline':>12} {'Curlew':>12} {'ratio':>6}  target")
    for row in [*ROWS, *store_rows(large=options.large)]:
        if options.only not in row.name:
            continue
        runs = [row.measure(options.seconds) for _ in range(row.runs or options.runs)]
        baseline = median(run[0] for run in runs)
        ours = median(run[1] for run in runs)
        ratio = median(run[1] / run[0] for run in runs)
        print(f"{row.name:42} {baseline:12,.1f} {ours:12,.1f} {ratio:6.2f}  {row.target}"
              f" ({row.unit}; baseline: {row.baseline})")  # fmt: skip
        sys.stdout.flush()
        results.append(
            {
                "case": row.name,
                "unit": row.unit,
                "baseline": baseline,
                "ours": ours,
                "ratio": round(ratio, 3),
                "target": row.target,
                "runs": runs,
            }
        )
    _remember(results)


def _remember(results: list[dict[str, object]]) -> None:
    """Put the results in the place of older ones of the same cases."""
    known = {row["case"]: row for row in json.loads(LATEST.read_text())} if LATEST.exists() else {}
    known |= {row["case"]: row for row in results}
    LATEST.write_text(json.dumps(list(known.values()), indent=1) + "\n")


if __name__ == "__main__":
    main()
