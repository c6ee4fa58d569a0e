"""Run the rows, print the table, write `benchmarks/latest.json`."""

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from statistics import median

from benchmarks.clients.client_peers import CLIENT_PEER_ROWS
from benchmarks.clients.client_rows import CLIENT_ROWS
from benchmarks.in_process.store_rows import store_rows
from benchmarks.pages.overview import OVERVIEW_ROWS
from benchmarks.peer_rows import PEER_ROWS
from benchmarks.peers import PeerFailed
from benchmarks.row import Row
from benchmarks.rows import ROWS

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
    print(f"{'case':43} {'baseline':>12} {'Curlew':>12} {'ratio':>6}  target")
    rows = [
        *ROWS,
        *CLIENT_ROWS,
        *CLIENT_PEER_ROWS,
        *PEER_ROWS,
        *OVERVIEW_ROWS,
        *store_rows(large=options.large),
    ]
    for row in rows:
        if options.only in row.name:
            results.append(_result(row, row.runs or options.runs, options.seconds))
            sys.stdout.flush()
    _remember(results, {row.name for row in rows})


def _result(row: Row, runs_wanted: int, seconds: float) -> dict[str, object]:
    """Measure a row and print its line."""
    result: dict[str, object] = {"case": row.name, "unit": row.unit, "target": row.target}
    runs: list[tuple[float, float]] = []
    reason = f"install {' '.join(packages)}" if (packages := row.missing()) else ""
    try:
        while not reason and len(runs) < runs_wanted:
            runs.append(row.measure(seconds))
    except PeerFailed as error:
        reason = str(error)
    if reason:
        print(f"{row.name:43} not run: {reason}")
        return {**result, "not_run": reason}
    baseline = median(run[0] for run in runs)
    ours = median(run[1] for run in runs)
    ratio = median(run[1] / run[0] for run in runs)
    digits = ",.1f" if max(baseline, ours) >= 10 else ",.3f"
    print(f"{row.name:43} {baseline:12{digits}} {ours:12{digits}} {ratio:6.2f}  {row.target}"
          f" ({row.unit}; baseline: {row.baseline})")  # fmt: skip
    return {**result, "baseline": baseline, "ours": ours, "ratio": round(ratio, 3), "runs": runs}


def _remember(results: list[dict[str, object]], cases: set[str]) -> None:
    """Put the results in the place of older ones of the same cases; drop cases that are gone."""
    older = json.loads(LATEST.read_text()) if LATEST.exists() else []
    known = {row["case"]: row for row in older if row["case"] in cases}
    known |= {row["case"]: row for row in results}
    LATEST.write_text(json.dumps(list(known.values()), indent=1) + "\n")


if __name__ == "__main__":
    main()
