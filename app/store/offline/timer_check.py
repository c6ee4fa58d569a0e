"""Reading the timer log whole: every block of every run, and what the manifest says of them.

It is made from the timer topic, and is made again by a node that finds it damaged.
"""

from collections.abc import Iterator
from typing import Final

from app.store import paths
from app.store.formats.files.state_file import StateFileError
from app.store.formats.files.timer_run import RunDamaged, TimerManifest, decode_manifest
from app.store.fs.files import FileSystem, read_whole
from app.store.fs.strays import is_file
from app.store.offline.directory import Kind, Problem
from app.store.timers.timer_runs import Run, merged

_BEFORE_ALL: Final = (-(1 << 63), 0)


def check_timer_log(files: FileSystem) -> Iterator[Problem]:
    """What is wrong with it. A store that never had a delayed message has none."""
    if not is_file(files, paths.TIMER_MANIFEST):
        return
    try:
        manifest = decode_manifest(read_whole(files, paths.TIMER_MANIFEST) or b"")
    except StateFileError as error:
        yield Problem(Kind.TIMER_LOG, paths.TIMER_MANIFEST, 0, str(error))
        return
    runs: list[Run] = []
    for number in manifest.runs:
        path = paths.timer_run(number)
        try:
            run = Run.open(files, number)
            for _ in run.rows_from(_BEFORE_ALL):
                pass
        except (RunDamaged, OSError) as error:
            yield Problem(Kind.TIMER_LOG, path, 0, str(error))
        else:
            runs.append(run)
    if len(runs) == len(manifest.runs):
        yield from _hold_to(manifest, runs)


def _hold_to(manifest: TimerManifest, runs: list[Run]) -> Iterator[Problem]:
    """Compare the number of waiting records; the runs are intact, each for itself."""
    sources = [run.rows_from(_BEFORE_ALL) for run in runs]
    waiting = sum(len(rows) for rows in merged(sources, is_whole=True))
    expected = sum(count for _, count in manifest.blocks)
    if waiting != expected:
        what = f"{waiting} delayed messages are in the runs instead of {expected}"
        yield Problem(Kind.TIMER_LOG, paths.TIMER_MANIFEST, 0, what)
