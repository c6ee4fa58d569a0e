"""`curlew store …`: an operator's commands on a store that no node has open.

Prints lines for people, or JSON with `--json`. What is done stands in `app.store.tools`; this
module also brings RocketMQ's topics and consumer offsets into the metadata.
"""

import argparse
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from app.cluster import ClusterConfig, CommittedOffset, Metadata
from app.domain.clock import Clock
from app.domain.errors import CurlewError
from app.domain.limits import Limits
from app.domain.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from app.domain.positions import QueueOffset
from app.domain.settings import TopicSettings
from app.store import OsFiles, StoreUnusable, tools
from app.store.tools import StoreReport

EXIT_PROBLEMS: Final = 1
_NUMBER_NAMES: Final = re.compile(r"([{,]\s*)(\d+)(\s*:)")
"""RocketMQ writes queue ids as names without quotes."""


class _TopicConfig(msgspec.Struct, rename="camel"):
    read_queue_nums: int = 4
    write_queue_nums: int = 4


class _Topics(msgspec.Struct, rename="camel"):
    topic_config_table: dict[str, _TopicConfig] = {}


class _Offsets(msgspec.Struct, rename="camel"):
    offset_table: dict[str, dict[str, int]] = {}


_Document = TypeVar("_Document", _Topics, _Offsets)


def add_commands(parser: argparse.ArgumentParser) -> None:
    """The sub-commands of `curlew store`. The caller adds the options of the configuration."""
    commands = parser.add_subparsers(dest="store_command", required=True, metavar="ACTION")
    for name, text in (
        ("stats", "what the store has, from its checkpoint"),
        ("verify", "read everything and report damage by file, offset and message"),
        ("repair", "make damaged queues and index again; never deletes without a copy"),
        ("dump", "print records in the order of the log"),
        ("import", "take over the directory of a RocketMQ 4.9 or 5 broker"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("--json", action="store_true", help="print JSON")
        command.add_argument("--data-dir", help="directory of the node (./data)")
        command.add_argument("--database-url", help="metadata database, for import")
        command.add_argument("--config", type=Path, help="TOML file; flags win over it")
        if name == "dump":
            command.add_argument("--from", dest="start", type=int, default=0, metavar="OFFSET")
            command.add_argument("--count", type=int, default=100)
        if name == "import":
            command.add_argument("source", type=Path, help="the directory that has commitlog/")


def inspect_store(options: argparse.Namespace, root: Path, clock: Clock) -> int:
    """Every command but the import; the exit status."""
    if not root.is_dir():
        raise StoreUnusable(f"there is no store at {root}; name the node's --data-dir")
    files = OsFiles(root)
    if options.store_command == "dump":
        for record in tools.dump(files, clock, options.start, options.count):
            _line(json.dumps(record, ensure_ascii=False) if options.json else _text(record))
        return 0
    if options.store_command == "stats":
        return _show(tools.stats(files, clock), as_json=options.json)
    if options.store_command == "verify":
        return _show(tools.verify(files, clock), as_json=options.json)
    before, copies, after = tools.repair(files, clock)
    if options.json:
        shown = {"before": asdict(before), "copies": copies, "after": asdict(after)}
        _line(json.dumps(shown, indent=2))
    else:
        _line(f"{before.problem_count} problems before, {after.problem_count} after")
        for copy in copies:
            _line(f"  kept a copy: {copy}")
        for problem in after.problems:
            _line(f"  {problem.file} byte {problem.offset}: {problem.message}")
    return EXIT_PROBLEMS if after.problem_count else 0


def import_log(source: Path, root: Path, clock: Clock) -> StoreReport:
    """The part of the import that needs no metadata."""
    if not source.is_dir():
        raise StoreUnusable(f"there is no directory {source}")
    root.mkdir(parents=True, exist_ok=True)
    return tools.import_log(OsFiles(source), OsFiles(root), clock)


async def import_store(
    options: argparse.Namespace, root: Path, database_url: str, clock: Clock
) -> int:
    """Take over a RocketMQ directory: log, queues, keys, topics and consumer offsets."""
    source: Path = options.source
    report = import_log(source, root, clock)
    topics = _read(source, "topics.json", _Topics).topic_config_table
    offsets = _read(source, "consumerOffset.json", _Offsets).offset_table
    metadata = await Metadata.open(ClusterConfig(database_url), clock, Limits())
    try:
        taken, left = await _import_topics(metadata, topics, report)
        committed = await _import_offsets(metadata, offsets, taken)
    finally:
        await metadata.close()
    shown = {
        "imported_topics": sorted(taken),
        "system_topics_left_out": sorted(left),
        "committed_offsets": committed,
        **asdict(report),
    }
    if options.json:
        _line(json.dumps(shown, indent=2))
    else:
        _line(f"imported {len(taken)} topics and {committed} consumer offsets")
        _show(report, as_json=False)
    return EXIT_PROBLEMS if report.problem_count else 0


def _read(source: Path, name: str, kind: type[_Document]) -> _Document:
    text = tools.read_source_text(OsFiles(source), f"config/{name}")
    if text is None:
        return kind()
    try:
        return msgspec.json.decode(_NUMBER_NAMES.sub(r'\1"\2"\3', text).encode(), type=kind)
    except msgspec.DecodeError as error:
        raise StoreUnusable(f"config/{name} of the source cannot be read: {error}") from error


async def _import_topics(
    metadata: Metadata, topics: Mapping[str, _TopicConfig], report: StoreReport
) -> tuple[set[str], set[str]]:
    """Topics that clients may use; the others' messages are in the log but not served."""
    wanted = {
        name: max(config.read_queue_nums, config.write_queue_nums, 1)
        for name, config in topics.items()
        if name in report.topics
    }
    for name, queues in report.topics.items():
        wanted[name] = max(wanted.get(name, 1), max(queues, default=0) + 1)
    taken: set[str] = set()
    left: set[str] = set()
    for name, count in wanted.items():
        try:
            await metadata.put_topic(name, TopicSettings(queues=count))
        except CurlewError:
            left.add(name)
        else:
            taken.add(name)
    return taken, left


async def _import_offsets(
    metadata: Metadata, offsets: Mapping[str, Mapping[str, int]], topics: set[str]
) -> int:
    rows: list[CommittedOffset] = []
    for place, queues in offsets.items():
        topic, _, group = place.partition("@")
        if topic not in topics or topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
            continue
        try:
            await metadata.ensure_group(group)
        except CurlewError:
            continue
        rows += [
            CommittedOffset(group, topic, int(queue_id), QueueOffset(offset))
            for queue_id, offset in queues.items()
        ]
    missing = await metadata.commit_offsets(rows)
    return len(rows) - len(missing)


def _show(report: StoreReport, *, as_json: bool) -> int:
    if as_json:
        _line(json.dumps(asdict(report), indent=2))
    else:
        _line(f"store {report.store_id}, {'stopped in order' if report.clean else 'not closed'}")
        _line(f"  log        {report.start} to {report.end}, {report.segments} segments")
        for topic, queues in sorted(report.topics.items()):
            bounds = ", ".join(f"{q}: {a} to {b}" for q, (a, b) in sorted(queues.items()))
            _line(f"  {topic}  {bounds}")
        if report.records:
            _line(f"  checked    {report.records} records, {report.keys} keys")
        for problem in report.problems:
            _line(f"  PROBLEM    {problem.file} byte {problem.offset}: {problem.message}")
    return EXIT_PROBLEMS if report.problem_count else 0


def _text(record: Mapping[str, object]) -> str:
    place = f"{record['topic']}/{record['queue_id']}/{record['queue_offset']}"
    return f"{record['physical_offset']:>12} {place} {record['properties']} {record['body']}"


def _line(text: str) -> None:
    sys.stdout.write(text + "\n")
