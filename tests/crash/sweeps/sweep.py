"""The long fault tests, and their figures for docs/promises.md: `make test-crash`.

    python -m tests.crash.sweeps.sweep --points 1000 --seed 1 --lives 5 [--write docs/promises.md]

Kills at `--points` points, all damages of the small store, `--lives` power cuts per file system,
flush mode and kind of cut. Ends with status 1 when a promise was broken.
"""

import argparse
import os
import platform
import random
import re
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.crash.store.test_flips import is_derived
from tests.crash.sweeps.disks import DROP_JOURNAL, FLUSH_JOURNAL, KINDS, mounted_disk, why_not
from tests.crash.sweeps.flips import damages, look, make_sample
from tests.crash.sweeps.kills import choose_points, run_points, strace_version
from tests.crash.sweeps.power import lose_power

END = "<!-- end of figures -->"
PROCESSES = 2
SYNCS = 200


class Part(NamedTuple):
    """Lines for the table, and what went wrong."""

    rows: list[str]
    broken: list[str]


def kills(points: int, seed: int) -> Part:
    figures = run_points(choose_points(random.Random(seed), points))
    times = sorted(1000 * seconds for seconds in figures.recovery_s)
    cuts = statistics.quantiles(times, n=20)
    return Part(
        [
            f"| Kills: points (killed at the call) | {figures.points} ({figures.killed}) |",
            f"| Kills: acknowledged, lost | {figures.acknowledged}, {figures.lost} |",
            f"| Kills: loss per kill, 95 % bound (3/N) | < {3 / max(figures.killed, 1):.2%} |",
            f"| Kills: recovery p50 / p95 / max | {statistics.median(times):.1f} / "
            f"{cuts[-1]:.1f} / {times[-1]:.1f} ms |",
        ],
        figures.complaints + ["messages were lost"] * (figures.lost > 0),
    )


def look_at_some(clean: bool, start: int, step: int) -> tuple[int, int, list[str]]:
    """Every `step`-th damage: how many, how many of these in queue files, what is wrong."""
    sample = make_sample(clean=clean)
    count = derived = 0
    broken: list[str] = []
    for damage in list(damages(sample))[start::step]:
        report = look(sample, damage)
        count += 1
        derived += is_derived(damage)
        if any(report):
            broken.append(f"{damage}: {report}")
    return count, derived, broken


def flips(every: int) -> Part:
    step = PROCESSES * every
    jobs = [(clean, start * every, step) for clean in (True, False) for start in range(PROCESSES)]
    with ProcessPoolExecutor(PROCESSES) as pool:
        results = list(pool.map(look_at_some, *zip(*jobs, strict=True)))
    broken = [line for _, _, lines in results for line in lines]
    return Part(
        [
            f"| Damages tried ({_share(every)} of all bits and blocks) | "
            f"{sum(count for count, _, _ in results)} |",
            f"| of these in queue files | {sum(derived for _, derived, _ in results)} |",
            f"| of all that served other bytes or cost another record | {len(broken)} |",
        ],
        broken,
    )


def _share(every: int) -> str:
    return "all" if every == 1 else f"one in {every}"


def power(lives: int) -> Part:
    rows: list[str] = []
    broken: list[str] = []
    for kind in KINDS:
        if reason := why_not(kind):
            rows.append(f"| Power cuts, {kind.name} | not run: {reason} |")
            continue
        total = lost_total = 0
        for flush in ("sync", "async"):
            for flag in (DROP_JOURNAL, FLUSH_JOURNAL):
                with (
                    tempfile.TemporaryDirectory() as directory,
                    mounted_disk(kind, Path(directory)) as disk,
                ):
                    durable, lost = lose_power(disk, flush, flag, lives=lives)
                total += durable
                lost_total += lost
        rows.append(
            f"| Power cuts, {kind.name}: cuts, acknowledged as durable, lost | "
            f"{4 * lives}, {total}, {lost_total} |"
        )
        if lost_total:
            broken.append(f"{kind.name} lost {lost_total}")
    return Part(rows, broken)


def sync_figures() -> str:
    """fdatasync of this disk: without it a figure of sync mode says nothing."""
    times: list[float] = []
    with tempfile.TemporaryFile() as file:
        for _ in range(SYNCS):
            file.write(bytes(4096))
            file.flush()
            started = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(1e6 * (time.perf_counter() - started))
    cuts = statistics.quantiles(times, n=100)
    return f"| fdatasync of this disk p50 / p99 | {cuts[49]:.0f} / {cuts[98]:.0f} µs |"


def write_figures(path: Path, target: str, rows: list[str], command: str) -> None:
    """Replace what stands between the markers of a make target."""
    text = path.read_text()
    begin = f"<!-- figures of {target} -->"
    table = "\n".join(["| What | Figure |", "|---|---|", *rows])
    block = f"{begin}\n\n`{command}`\n\n{table}\n\n{END}"
    path.write_text(re.sub(f"{begin}.*?{END}", lambda _: block, text, flags=re.DOTALL))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lives", type=int, default=5)
    parser.add_argument("--every", type=int, default=1, help="try one damage in so many")
    parser.add_argument("--write", type=Path, help="put the figures into this file")
    options = parser.parse_args()
    started = time.perf_counter()
    parts = [kills(options.points, options.seed), flips(options.every), power(options.lives)]
    python = platform.python_version()
    machine = f"{os.cpu_count()} cores, Linux {platform.release()}, Python {python}"
    rows = [f"| Machine | {machine}, strace {strace_version()} |", sync_figures()]
    rows += [row for part in parts for row in part.rows]
    rows.append(f"| Duration | {time.perf_counter() - started:.0f} s |")
    print("\n".join(rows))
    broken = [line for part in parts for line in part.broken]
    print("\n".join(broken[:50]) or "no promise was broken")
    if options.write:
        command = (
            f"python -m tests.crash.sweeps.sweep --points {options.points} --seed {options.seed}"
        )
        write_figures(
            options.write,
            "make test-crash",
            rows,
            f"{command} --lives {options.lives} --every {options.every}",
        )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
