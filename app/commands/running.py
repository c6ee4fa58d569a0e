"""Carries out what the commands of the server say. What takes long to import is imported by the
commands that need it: a key is made at once."""

import argparse
import logging
import os
import sys
from typing import Final

import uvloop

from app.cluster import ClusterConfig, Metadata, Migrated, migrate
from app.commands import access_commands, replica_commands, secret_commands, store_commands
from app.config import NAMES, Config, ConfigError, DataDirectoryUnusable, load_config
from app.domain.errors import CurlewError
from app.node_parts.access import narrow_files
from app.runtime.descriptors import TooFewDescriptors
from app.runtime.private_files import make_private_directory
from app.runtime.secure.secret_files import UnusableSecretFile
from app.runtime.secure.tls_files import UnusableCertificate
from app.runtime.secure.tokens import UnusableTokenKeys
from app.runtime.system_clock import SystemClock
from app.store import StoreLocked, StoreUnusable

_LOG: Final = logging.getLogger(__name__)

EXIT_FOUND: Final = 1
"""`curlew audit verify` has found something."""
EXIT_UNUSABLE: Final = 2
"""It cannot start; why is said."""
_STARTUP_FAILURES: Final = (
    ConfigError,
    CurlewError,
    StoreLocked,
    StoreUnusable,
    TooFewDescriptors,
    UnusableCertificate,
    UnusableSecretFile,
    UnusableTokenKeys,
)

_OF_A_NODE: Final = ("dev", "serve")
"""The commands that listen."""


def run(options: argparse.Namespace) -> int:
    """Do it; the exit status: 0 well, 2 cannot start."""
    try:
        if options.command == "store":
            return _run_store(options)
        config = _load(options)
        _set_up_logging(config)
        if options.command in secret_commands.COMMANDS:
            said, is_well = uvloop.run(secret_commands.run(options, config))
            sys.stdout.write(said)
            return 0 if is_well else EXIT_FOUND
        printed = _without_a_node(options, config)
        if printed is not None:
            sys.stdout.write(printed)
            return 0
        if options.command == "dev":
            _migrate(config)
        if options.command == "serve" and options.migrate:
            _LOG.info("%s", _migration_line(_migrate(config)))
        from app.commands import node_commands

        node_commands.run(options, config)
    except _STARTUP_FAILURES as error:
        hint = getattr(error, "hint", None)
        text = getattr(error, "for_log", None) or error
        sys.stderr.write(f"curlew: {text}{f' ({hint})' if hint else ''}\n")
        return EXIT_UNUSABLE
    return 0


def _without_a_node(options: argparse.Namespace, config: Config) -> str | None:
    """What a command prints that changes the metadata; None for those that start a node."""
    if options.command == "migrate":
        return f"{_migration_line(_migrate(config))}\n"
    if options.command == "release-store":
        return uvloop.run(_release_store(config))
    if options.command in replica_commands.COMMANDS:
        return uvloop.run(replica_commands.run(options, config))
    if options.command in access_commands.COMMANDS:
        return uvloop.run(access_commands.run(options, config))
    return None


def _run_store(options: argparse.Namespace) -> int:
    try:
        return store_commands.run(options)
    except BrokenPipeError:  # `curlew store dump | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except store_commands.FAILURES as error:
        sys.stderr.write(f"curlew: {error}\n")
        return EXIT_UNUSABLE


def _set_up_logging(config: Config) -> None:
    logging.basicConfig(
        level=config.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    # Four lines for each statement, with its values: what a schedule sends, for one.
    logging.getLogger("aiosqlite").setLevel(logging.INFO)
    if config.log_level != "debug":
        for chatty in ("alembic", "uvicorn"):
            logging.getLogger(chatty).setLevel(logging.WARNING)


def _load(options: argparse.Namespace) -> Config:
    flags = {name: value for name in NAMES if (value := getattr(options, name)) is not None}
    defaults = {"auto_create_topics": "true"} if options.command == "dev" else {}
    listens = options.command in _OF_A_NODE
    return load_config(os.environ, flags, options.config, defaults, listens=listens)


def _migrate(config: Config) -> Migrated:
    if not config.database_url:
        try:
            make_private_directory(config.data_dir)
        except OSError as error:
            raise DataDirectoryUnusable(
                f"the data directory {config.data_dir} cannot be made: {error.strerror}; "
                "name another with --data-dir"
            ) from error
    narrow_files(config)
    return migrate(config.database)


def _migration_line(done: Migrated) -> str:
    if done.before == done.after:
        return f"{done.database} is up to date (schema {done.after})"
    return f"{done.database} was brought from schema {done.before or 'none'} to {done.after}"


async def _release_store(config: Config) -> str:
    """What to say when the next store that starts may claim the database."""
    metadata = await Metadata.open(ClusterConfig(config.database, config.flush), SystemClock())
    try:
        released = await metadata.release_shard(config.shard or None)
    finally:
        await metadata.close()
    if released is None:
        return "The metadata database belongs to no store; the next one that starts claims it.\n"
    return (
        f"The metadata database belongs to store {released[1].hex()} no more; the next store that"
        " starts claims it, with all topics and groups.\n"
    )
