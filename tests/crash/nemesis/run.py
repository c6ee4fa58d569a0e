"""The long run against a cluster, and its figures for docs/promises.md: `make test-cluster`.

    python -m tests.crash.nemesis.run --minutes 25 --seed 1 [--write docs/promises.md]

Rounds of faults, chosen by the seed, over three real nodes with networks and disks of their own and
a real PostgreSQL, while producers and consumers go on. Ends with status 1 when a promise was broken
or a cluster did not come back. Needs root.
"""

import argparse
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import median, quantiles
from time import monotonic
from typing import Final

from tests.crash.nemesis.nemesis import Report, running_nemesis
from tests.crash.sweeps.sweep import write_figures
from tests.support.cluster.hosts import why_not
from tests.support.cluster.three_processes import NAMES

TWO_AT_ONCE: Final = "two at once"
_TAKEN: Final = range(200, 300)


def figures(report: Report, duration_s: float) -> list[str]:
    """The rows of the table."""
    outcomes = Counter(each.outcome for each in report.sent)
    faults = sum(len(each.faults) for each in report.rounds)
    broken = {name: len(found) for name, found in report.violations.items()}
    rows = [
        f"| Rounds, faults | {len(report.rounds)}, {faults} |",
        f"| Messages confirmed, refused as not stored, without an answer | {outcomes['ok']}, "
        f"{outcomes['refused']}, {outcomes['unknown']} |",
        f"| Operators' requests taken, refused, without an answer | {_answers(report.orders)} |",
        f"| Promises broken (lost, twice, out of order, …) | {broken or 0} |",
        f"| Bytes of the log, alike in all replicas | {report.log.end - report.log.start} |",
    ]
    by_fault: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for each in report.rounds:
        name = each.faults[0] if len(each.faults) == 1 else TWO_AT_ONCE
        pair = report.silence_s(each), each.converged_s - each.undone_s
        by_fault[name].append(pair)
    for name, pairs in sorted(by_fault.items()):
        silence, convergence = zip(*pairs, strict=True)
        rows.append(
            f"| {name}: times; s without a confirmed send; s until all replicas are in sync again "
            f"| {len(pairs)}; {_spread(silence)}; {_spread(convergence)} |"
        )
    return [*rows, f"| Duration | {duration_s:.0f} s |"]


def _answers(orders: Counter[int]) -> str:
    """By what became of them."""
    taken = sum(count for status, count in orders.items() if status in _TAKEN)
    return f"{taken}, {orders.total() - taken - orders[0]}, {orders[0]}"


def _spread(values: Iterable[float]) -> str:
    """p50 / p95 / max."""
    found = sorted(values)
    p95 = quantiles(found, n=20, method="inclusive")[-1] if len(found) > 1 else found[0]
    return f"{median(found):.1f} / {p95:.1f} / {found[-1]:.1f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=25)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="keep what the nodes and workers wrote here")
    parser.add_argument("--write", type=Path, help="put the figures into this file")
    options = parser.parse_args()
    if reason := why_not():
        print(reason, file=sys.stderr)
        return 1
    began_s = monotonic()
    directory = options.directory or Path(tempfile.mkdtemp(prefix="curlew-nemesis-"))
    with running_nemesis(directory, options.seed) as nemesis:
        while monotonic() - began_s < 60 * options.minutes:
            names, lasting_s = nemesis.choose()
            print(f"{' and '.join(names)}, for {lasting_s:.1f} s", end="", flush=True)
            found = nemesis.befall(names, lasting_s)
            print(f"; in sync {found.converged_s - found.undone_s:.1f} s behind it")
        report = nemesis.end()
        if report.violations:  # its disk goes with the cluster
            shutil.copytree(directory / NAMES[0], directory / "store-of-a")
    rows = figures(report, monotonic() - began_s)
    print("\n".join(rows))
    for name, violations in report.violations.items():
        print(f"{name}:", *violations[:20], sep="\n  ")
        bodies = {each.body for each in report.sent} & set(violations[0].split())
        for body in bodies:
            print(*report.of_message(body), sep="\n    ")
    if not report.violations:
        shutil.rmtree(directory)
    else:
        print(f"what the nodes and the workers wrote is in {directory}")
    if options.write:
        command = f"python -m tests.crash.nemesis.run --minutes {options.minutes:g}"
        write_figures(options.write, "make test-cluster", rows, f"{command} --seed {options.seed}")
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
