"""`curlew store …`: the parser, and from options to the modules that do the work.

dump     the records of the log, or of one queue
verify   read everything, report damage
repair   make queues, index and checkpoint again; keep a copy of what is replaced
stats    figures as of the last checkpoint, also while a node runs
backup   copy the log, also while a node runs, and make a store of it
import   take over a RocketMQ store

Exit status: 0 well, 1 damage found, 2 could not run.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Final

import uvloop

from app.cluster import ClusterConfig, Metadata, migrate, sqlite_file_of
from app.commands.store_reports import (
    as_json,
    backup_json,
    backup_lines,
    dump_json,
    dump_line,
    import_json,
    import_lines,
    repair_json,
    repair_lines,
    statistics_json,
    statistics_lines,
    verification_json,
    verification_lines,
)
from app.config import Config, load_config
from app.domain.limits import Limits
from app.domain.settings import TopicSettings
from app.runtime.private_files import make_private_directory
from app.runtime.system_clock import SystemClock
from app.store import OsFiles, StoreUnusable
from app.store.fs.read_only_files import ReadOnlyFiles
from app.store.log.log_scan import Damage
from app.store.offline.backup import Backup, back_up
from app.store.offline.directory import locked, open_directory
from app.store.offline.dump import Selection, dump
from app.store.offline.importing import (
    ImportPlan,
    TargetNotEmpty,
    import_log,
    plan_import,
    refuse_if_not_empty,
)
from app.store.offline.measuring import measure
from app.store.offline.repair import Repair, repair
from app.store.offline.survey import SourceUnusable, Survey, survey
from app.store.offline.verification import verify

EXIT_DAMAGED: Final = 1

FAILURES: Final = (SourceUnusable, TargetNotEmpty, OSError)
"""What these commands raise besides what a node's start raises."""


def run(options: argparse.Namespace) -> int:
    """Run one command; the exit status. Raises what `FAILURES` and a node's start name."""
    names = ("data_dir", "database_url")
    flags = {name: value for name in names if (value := getattr(options, name, None)) is not None}
    config = load_config(os.environ, flags, options.config, listens=False)
    if options.action == "import":
        return _import(config, options)
    root = config.data_dir / "store"
    if not root.is_dir():
        raise StoreUnusable(f"there is no store in {config.data_dir}; name it with --data-dir")
    return _ACTIONS[options.action](root, options)


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")


def _dump(root: Path, options: argparse.Namespace) -> int:
    files = OsFiles(root)
    selection = Selection(
        options.from_offset, options.to_offset, topic=options.topic, queue_id=options.queue
    )
    damaged = False
    with locked(files):
        directory = open_directory(files)
        try:
            for item in islice(dump(directory, selection), options.limit):
                damaged = damaged or isinstance(item, Damage)
                if options.json:
                    _print([as_json(dump_json(item, bodies=options.bodies))])
                else:
                    _print([dump_line(item, bodies=options.bodies)])
        finally:
            directory.close()
    return EXIT_DAMAGED if damaged else 0


def _verify(root: Path, options: argparse.Namespace) -> int:
    files = OsFiles(root)
    with locked(files):
        found = verify(files)
    _print([as_json(verification_json(found))] if options.json else verification_lines(found))
    return EXIT_DAMAGED if found.problems else 0


def _repair(root: Path, options: argparse.Namespace) -> int:
    async def work() -> Repair:
        turns = asyncio.get_running_loop()
        return repair(OsFiles(root), SystemClock(), turns, dry_run=options.dry_run)

    done = uvloop.run(work())
    dry_run = options.dry_run
    if options.json:
        _print([as_json(repair_json(done, dry_run=dry_run))])
    else:
        _print(repair_lines(done, dry_run=dry_run))
    left = done.after.problems if done.after else done.before.problems
    return EXIT_DAMAGED if left else 0


def _stats(root: Path, options: argparse.Namespace) -> int:
    found = measure(ReadOnlyFiles(root))
    _print([as_json(statistics_json(found))] if options.json else statistics_lines(found))
    return 0


def _backup(root: Path, options: argparse.Namespace) -> int:
    target: Path = options.target
    make_private_directory(target)
    make_private_directory(target / "store")

    async def work() -> Backup:
        turns = asyncio.get_running_loop()
        return back_up(ReadOnlyFiles(root), OsFiles(target / "store"), SystemClock(), turns)

    done = uvloop.run(work())
    _print([as_json(backup_json(done))] if options.json else backup_lines(done, target))
    return EXIT_DAMAGED if done.verification.problems else 0


_ACTIONS: Final[dict[str, Callable[[Path, argparse.Namespace], int]]] = {
    "dump": _dump,
    "verify": _verify,
    "repair": _repair,
    "stats": _stats,
    "backup": _backup,
}


def _import(config: Config, options: argparse.Namespace) -> int:
    source, limits = ReadOnlyFiles(options.source), config.limits
    found = survey(source)
    plan = plan_import(found, limits)
    root = config.data_dir / "store"
    make_private_directory(config.data_dir)
    make_private_directory(root)
    refuse_if_not_empty(OsFiles(root))
    migrate(config.database)
    uvloop.run(_take_over(config, limits, source, found, plan))
    _print([as_json(import_json(found, plan))] if options.json else import_lines(found, plan))
    return EXIT_DAMAGED if found.damages else 0


async def _take_over(
    config: Config, limits: Limits, source: ReadOnlyFiles, found: Survey, plan: ImportPlan
) -> None:
    """Metadata first: all of it may be repeated, while the log goes into an empty store only."""
    clock = SystemClock()
    metadata = await Metadata.open(ClusterConfig(config.database, config.flush), clock, limits)
    try:
        _refuse_cluster(config, metadata)
        for namespace in plan.namespaces:
            await metadata.put_namespace(namespace)
        for topic in plan.topics:
            present = metadata.snapshot.topics.get(topic.name)
            settings = TopicSettings(
                queues=max(topic.queues, present.queues if present else 0),
                type=topic.type,
                flush=config.flush,
                retention_ms=limits.retention_ms_max,
                permission=topic.permission,
                write_queues=topic.write_queues,
            )
            await metadata.put_topic(topic.name, settings)
        for group in sorted({row.group for row in plan.offsets}):
            await metadata.ensure_group(group)
        await metadata.replace_offsets(plan.offsets)
    finally:
        await metadata.close()
    turns = asyncio.get_running_loop()
    import_log(found, source, OsFiles(config.data_dir / "store"), clock, turns)


def _refuse_cluster(config: Config, metadata: Metadata) -> None:
    """Raise `TargetNotEmpty` for a database whose shards would get the queues, and lose their
    offsets. One in SQLite is for one store, which the start of another tells."""
    if metadata.snapshot.shards and sqlite_file_of(config.database) is None:
        name = min(metadata.snapshot.shards)
        raise TargetNotEmpty(
            f"the metadata database has the shard {name!r}, which would get the queues of the"
            " imported topics; import with a database of its own; if that store is gone for good,"
            f" run `curlew release-store --shard {name}` first"
        )
