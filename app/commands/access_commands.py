"""`curlew init`, `curlew key …` and `curlew security open`: keys, made in the metadata database.

They work while the node runs, which hears of a change within two seconds, and while it does not:
whoever can write the database is its administrator. Keys are printed once and kept nowhere.
"""

import argparse
import os
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

from app.cluster import ClusterConfig, Metadata, migrate_new, sqlite_file_of
from app.commands.server_words import KINDS
from app.config import Config
from app.domain.access.accounts import PrincipalSettings, read_networks
from app.domain.access.actions import Kind
from app.domain.access.keys import NewKey
from app.domain.access.policies import Subject, SubjectKind, check_namespace, read_names
from app.domain.access.policy_warnings import AccessFacts
from app.domain.durations import parse_duration_ms
from app.domain.errors import InvalidRequest
from app.domain.limits import KEY_EXPIRES_MS_MAX
from app.domain.positions import TimestampMs
from app.runtime.closed_marker import (
    forget_closed,
    remember_closed,
    remember_version,
    remembered_version,
)
from app.runtime.private_files import make_private_directory
from app.runtime.secure.secret_key import SecretKey
from app.runtime.system_clock import SystemClock

COMMANDS: Final = frozenset({"init", "key", "security"})


_Step = Callable[[Metadata], Awaitable[str]]


async def run(options: argparse.Namespace, config: Config) -> str:
    """Carry out the command; what to print. A new key is printed at once."""
    if options.command == "init":
        file = sqlite_file_of(config.database)
        if file is not None and not file.exists():
            make_private_directory(config.data_dir)
        migrate_new(config.database)
    metadata = await Metadata.open(ClusterConfig(config.database, config.flush), SystemClock())
    try:
        return await _carry_out(options, config, metadata)
    finally:
        await metadata.close()


async def _carry_out(options: argparse.Namespace, config: Config, metadata: Metadata) -> str:
    principals = metadata.principals
    if getattr(options, "step", None) != "list":
        await _sign(config, metadata)
    principals.changes.known_version = remembered_version(config.data_dir)
    try:
        return await _step(options, config, metadata)
    finally:
        await principals.refresh()
        remember_version(config.data_dir, principals.keyring.version)


async def _sign(config: Config, metadata: Metadata) -> None:
    """Let the audit say whose key a change is signed with. Raises `OtherSecretKey` unless it is the
    cluster's: what is signed otherwise would look like a forgery afterwards."""
    key = SecretKey.of(config.secret_key_file)
    await metadata.claim_secret_key(key)
    metadata.audit.write_as(None, key)


async def _step(options: argparse.Namespace, config: Config, metadata: Metadata) -> str:
    principals = metadata.principals
    step = options.command if options.command == "init" else f"{options.command} {options.step}"
    if step == "key list":
        return await _listing(metadata)
    if step == "key revoke":
        gone = await principals.revoke(options.name, options.key)
        return f"Keys revoked: {gone}. Nodes know within 2 seconds.\n"
    if step == "security open":
        gone = await principals.open_to_anybody()
        forget_closed(config.data_dir)
        return f"Keys forgotten: {gone}. After a restart the node asks nobody for a key.\n"
    if step == "security accept":
        await principals.accept()
        return "The keys and policies of this database count from now on.\n"
    settings: PrincipalSettings | None = None
    with _KeyPlace(options.key_file) as place:
        if step == "init":
            key = await principals.make_first()
        elif step == "key create":
            settings = _settings(options)
            key = await principals.create(options.name, settings, _expiry(options.expires))
        else:
            key = await principals.rotate(options.name, _expiry(options.expires))
        place.put(key)
    remember_closed(config.data_dir)
    if settings is None:
        return ""
    return "".join(f"\nWarning: {each}\n" for each in _warnings(metadata, options.name, settings))


def _warnings(metadata: Metadata, name: str, settings: PrincipalSettings) -> list[str]:
    """What of it may not be meant so, as `PUT /v1/principals/{name}` says it."""
    subject = Subject(SubjectKind.PRINCIPAL, name)
    return AccessFacts.of(metadata.snapshot, metadata.principals.keyring).warnings_of(
        settings.patterns, settings.namespace, subject
    )


def _settings(options: argparse.Namespace) -> PrincipalSettings:
    patterns = [read_names(Kind(kind), text) for kind in KINDS for text in getattr(options, kind)]
    namespace = check_namespace(options.namespace)
    return PrincipalSettings(
        tuple(dict.fromkeys(options.role)),
        tuple(patterns),
        namespace,
        allowed_from=read_networks(options.allowed_from),
    )


class _KeyPlace:
    """Where a new key goes: a file that is made before the key is, or the output. It is there
    before anything else is done that may fail: nobody has it twice."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        if self._path is not None:
            try:
                self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            except OSError as error:
                raise InvalidRequest(
                    f"{self._path} cannot be made: {error.strerror}",
                    hint="name a file that is not there, in a directory that this user may write",
                ) from error
        return self

    def put(self, key: NewKey) -> None:
        if self._descriptor is None:
            sys.stdout.write(
                f"{key.text}\n\nThis is shown once. Send it with each request:\n\n"
                "  curl -H 'Authorization: Bearer <key>' http://127.0.0.1:8710/v1/topics\n"
                "  curl -u :<key> http://127.0.0.1:8710/v1/topics\n"
            )
            sys.stdout.flush()
            return
        os.write(self._descriptor, f"{key.text}\n".encode("ascii"))
        os.fsync(self._descriptor)
        sys.stdout.write(f"The key {key.key_id} is in {self._path}.\n")
        sys.stdout.flush()

    def __exit__(self, kind: object, *_: object) -> None:
        if self._descriptor is not None and self._path is not None:
            os.close(self._descriptor)
            if kind is not None:
                self._path.unlink(missing_ok=True)


async def _listing(metadata: Metadata) -> str:
    times = f"{'CREATED':16} {'LAST USED':16} {'EXPIRES':16}"
    lines = [f"{'PRINCIPAL':20} {'ROLES':10} {'KEY':13} {times} FROM"]
    for account in await metadata.principals.accounts():
        roles = ",".join(account.settings.roles) or "-"
        start = f"{account.name:20} {roles:10}"
        let_in = ",".join(account.settings.allowed_from) or "anywhere"
        for key in account.keys:
            used = "-" if key.last_used_ms is None else _day(key.last_used_ms)
            expires = "never" if key.expires_ms is None else _day(key.expires_ms)
            note = "" if key.is_live else " (expired)"
            until = f"{expires}{note}"
            row = f"{key.key_id:13} {_day(key.created_ms)} {used:16} {until:16} {let_in}"
            lines.append(f"{start} {row}")
        if not account.keys:
            lines.append(f"{start} {'no key':64} {let_in}")
    return "\n".join(lines) + "\n"


def _day(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1_000, UTC):%Y-%m-%dT%H:%M}"


def _expiry(text: str | None) -> TimestampMs | None:
    """When a key that is made now expires; None: never."""
    if text is None:
        return None
    try:
        duration_ms = parse_duration_ms(text)
    except ValueError as error:
        raise InvalidRequest(f"--expires: {error}") from error
    if not 0 < duration_ms <= KEY_EXPIRES_MS_MAX:
        raise InvalidRequest("--expires: a key works for more than 0 and at most 10 years")
    return TimestampMs(SystemClock().now_ms() + duration_ms)
