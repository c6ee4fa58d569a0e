"""What the commands of the server take: their parser. Of the command that is run, and of no other,
the options are worked out, and nothing of a node is imported: `curlew serve --help` is quick.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Final

_SWITCHES: Final = ("access_log", "insecure_anonymous", "plaintext")
"""Settings whose flag takes no value."""


def parser_of(chosen: str | None = None) -> argparse.ArgumentParser:
    """The parser, with the options of the command that is chosen; None: of all."""
    parser = argparse.ArgumentParser(prog="curlew", description="A message service over HTTP.")
    version = _version() if chosen in {None, "--version"} else ""  # takes long to find out
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (text, add_options) in _COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        if chosen is None or chosen == name:
            add_options(command)
    return parser


def _version() -> str:
    from app.runtime.version import program_version

    return f"curlew {program_version()}"


def _add_settings(command: argparse.ArgumentParser) -> None:
    """The flags for all settings."""
    from app.settings import SETTINGS

    command.add_argument("--config", type=Path, help="TOML file; flags win over it")
    for name, setting in SETTINGS.items():
        flag = "--" + name.replace("_", "-")
        if name in _SWITCHES:
            command.add_argument(flag, action="store_const", const="true", help=setting.meaning)
        else:
            command.add_argument(flag, help=f"{setting.meaning} ({setting.kind.values})")


def _add_serve(command: argparse.ArgumentParser) -> None:
    _add_settings(command)
    command.add_argument(
        "--migrate",
        action="store_true",
        help="bring the metadata database to this version's schema before the node starts",
    )


def _add_init(command: argparse.ArgumentParser) -> None:
    _add_key_file(command)
    _add_settings(command)


def _steps_of(
    command: argparse.ArgumentParser, dest: str = "step"
) -> "argparse._SubParsersAction[argparse.ArgumentParser]":
    return command.add_subparsers(dest=dest, required=True, metavar=dest.upper())


def _add_key(command: argparse.ArgumentParser) -> None:
    steps = _steps_of(command)
    create = steps.add_parser("create", help="a new principal and its key")
    create.add_argument("name", help="of whom the key is for, for instance ci")
    create.add_argument(
        "--role", required=True, action="append", choices=ROLE_NAMES, help="may be given again"
    )
    for kind in KINDS:
        create.add_argument(
            f"--{kind}",
            action="append",
            default=[],
            metavar="PATTERN",
            help=f"keep it to this {kind}, or with orders-* to those that begin so; again for more",
        )
    create.add_argument("--namespace", default="", help="bind it to this one")
    create.add_argument(
        "--from",
        dest="allowed_from",
        action="append",
        default=[],
        metavar="NETWORK",
        help="let it in from this network or address only, as 10.0.0.0/8; again for more",
    )
    rotate = steps.add_parser("rotate", help="a second key; the first works until it is revoked")
    rotate.add_argument("name")
    for parser in (create, rotate):
        parser.add_argument("--expires", metavar="90d", help="how long the key works")
        _add_key_file(parser)
    listing = steps.add_parser("list", help="all keys, without their secrets")
    revoke = steps.add_parser("revoke", help="take a key away, or a principal with all its keys")
    revoke.add_argument("name")
    revoke.add_argument("--key", metavar="ID", help="only this one")
    for parser in (create, rotate, listing, revoke):
        _add_settings(parser)


def _add_security(command: argparse.ArgumentParser) -> None:
    security = _steps_of(command)
    for name, text in (
        ("open", "ask nobody for a key any more, and forget all keys; restart the node afterwards"),
        ("accept", "let a database count that is an older copy, with the keys that it has"),
    ):
        _add_settings(security.add_parser(name, help=text, description=text))


def _add_key_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--key-file", type=Path, help="write the key there, for its owner alone; do not print it"
    )


def _add_remove_node(command: argparse.ArgumentParser) -> None:
    command.add_argument("node", metavar="NODE", help="its id, as `curlew cluster status` says it")
    _add_settings(command)


def _add_reset_replica(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--keep-log", action="store_true", help="keep the log, where it is as the leader's"
    )
    _add_settings(command)


def _add_secret_key(command: argparse.ArgumentParser) -> None:
    text = "take the key of secret_key_file for the cluster's, in the place of the one before"
    _add_settings(_steps_of(command).add_parser("accept", help=text, description=text))


def _add_audit(command: argparse.ArgumentParser) -> None:
    text = "say whether entries were changed, taken out or put in, and print the newest heads"
    verify = _steps_of(command).add_parser("verify", help=text, description=text)
    verify.add_argument(
        "--head",
        action="append",
        default=[],
        metavar="NODE:SEQ:LINK",
        help="one that was printed before, or stands in a node's log; may be repeated",
    )
    _add_settings(verify)


def _add_store(command: argparse.ArgumentParser) -> None:
    actions = _steps_of(command, "action")
    made = {}
    for name, text in (
        ("dump", "print the records of the log, or of one queue"),
        ("verify", "read everything and report damage"),
        ("repair", "make again what can be made from the log; nothing is deleted without a copy"),
        ("stats", "figures as of the last checkpoint; may run beside a node"),
        ("backup", "copy the store as it is now, to an empty directory; may run beside a node"),
        ("import", "take over the store of a RocketMQ broker (4.9 or 5) that is stopped"),
    ):
        made[name] = actions.add_parser(name, help=text, description=text)
        made[name].add_argument("--config", type=Path, help="TOML file; flags win over it")
        made[name].add_argument("--data-dir", help="directory of the node's data (./data)")
        made[name].add_argument("--json", action="store_true", help="JSON instead of lines")
    dumped = made["dump"]
    dumped.add_argument("--from", type=int, dest="from_offset", help="physical offset to begin at")
    dumped.add_argument("--to", type=int, dest="to_offset", help="physical offset to end before")
    dumped.add_argument("--topic", help="this topic only")
    dumped.add_argument("--queue", type=int, help="this queue of the topic only")
    dumped.add_argument("--limit", type=_whole_number, help="at most so many records")
    dumped.add_argument("--bodies", action="store_true", help="whole bodies")
    made["repair"].add_argument("--dry-run", action="store_true", help="say what would be done")
    made["backup"].add_argument("target", type=Path, help="the data directory to make")
    made["import"].add_argument("source", type=Path, help="RocketMQ's storePathRootDir")
    made["import"].add_argument("--database-url", help="metadata database, as for a node")


def _whole_number(text: str) -> int:
    """For argparse, which names the argument and the text when this raises."""
    number = int(text)
    if number < 0:
        raise ValueError
    return number


def _add_nothing(_: argparse.ArgumentParser) -> None:
    """The command takes no options."""


ROLE_NAMES: Final = ("admin", "operator", "producer", "consumer", "viewer")
"""`app.domain.access.roles.ROLES`, without what they are allowed."""
KINDS: Final = ("topic", "group", "producer")
"""To what names a key can be kept."""

_COMMANDS: Final[dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]]] = {
    "dev": ("start a node with friendly defaults", _add_settings),
    "serve": ("start a production node", _add_serve),
    "migrate": ("bring the metadata database to this version's schema", _add_settings),
    "release-store": (
        "let another store use the metadata database; stop its node before",
        _add_settings,
    ),
    "init": (
        "make the first administrator and print its key; from then on each request needs one",
        _add_init,
    ),
    "key": ("make, list and revoke API keys", _add_key),
    "security": ("whether keys are needed", _add_security),
    "remove-node": (
        "take a node that is gone for good out of the replicas of its shard",
        _add_remove_node,
    ),
    "reset-replica": (
        "have the replica of a stopped node begin anew, without what its data directory has",
        _add_reset_replica,
    ),
    "secret-key": ("the secret key of the cluster", _add_secret_key),
    "audit": ("what is remembered of who changed what", _add_audit),
    "store": ("look at, check, repair or fill a store", _add_store),
    "openapi": ("print the OpenAPI document", _add_nothing),
    "settings": ("print every setting with default and range, as Markdown", _add_nothing),
}
