"""Who may use a node, settled at its start: the first administrator, whether it asks for keys,
that its database knows no fewer keys than the node has seen, and that only its user reads its
files."""

import logging
from pathlib import Path
from typing import Final

from app.cluster import Metadata, regressed, sqlite_file_of
from app.config import AuthMode, Config, ConfigError
from app.domain.access.keyring import Keyring
from app.domain.access.keys import NewKey, key_id_of
from app.domain.errors import StateConflict
from app.runtime.closed_marker import (
    is_closed_here,
    remember_closed,
    remember_version,
    remembered_version,
)
from app.runtime.private_files import everything_in, files_of_sqlite, narrow
from app.runtime.secure.secret_files import read_secret, write_secret

_LOG: Final = logging.getLogger(__name__)


async def admit_administrator(config: Config, metadata: Metadata) -> None:
    """Make the first administrator with the key of `admin_key_file`, or write a new one there.

    Raises `ConfigError`. What an orchestrator starts needs no command before.
    """
    file = config.admin_key_file
    if file is None or metadata.principals.keyring.keys:
        return
    given = _key_in(file)
    try:
        made = await metadata.principals.make_first(given)
    except StateConflict:  # there is one, whose keys have all expired, or another node was faster
        return
    if given is None:
        _write_key(file, made)
    await metadata.principals.refresh()
    _LOG.info("the key of the first administrator is %s, in %s", made.key_id, file)


def _key_in(file: Path) -> NewKey | None:
    """The key that is in `admin_key_file`; None when there is no file."""
    if not file.exists():
        return None
    text = read_secret(file, "admin_key_file").decode("latin-1").strip()
    key_id = key_id_of(text)
    if key_id is None:
        raise ConfigError(
            f"admin_key_file = {file} holds no API key; name a file that is not there, and a key "
            "is made and written to it"
        )
    return NewKey(key_id, text)


def _write_key(file: Path, key: NewKey) -> None:
    try:
        write_secret(file, f"{key.text}\n".encode("ascii"))
    except OSError as error:
        raise ConfigError(
            f"admin_key_file = {file} cannot be made: {error.strerror}; a first administrator was "
            "made with a key that nobody has: make another with `curlew key create NAME --role "
            "admin`"
        ) from error


def close_if_closed(config: Config, metadata: Metadata) -> None:
    """Ask for keys if this node ever did. Raises `ConfigError` for a node that nobody should serve.

    The fact stands in the database and beside the store: neither loss opens the node.
    """
    principals = metadata.principals
    if is_closed_here(config.data_dir) or config.auth is AuthMode.REQUIRED:
        principals.close_here()
    if not principals.keyring.is_closed:
        if not (config.is_local or config.insecure_anonymous):
            raise ConfigError(
                f"host = {config.host!r} can be reached by other machines, and there is no key; "
                f"make the first with `curlew init --data-dir {config.data_dir}` (and the settings "
                "of the database and of the secret key, if this node has any), or say "
                "--insecure-anonymous if only people you trust reach it"
            )
        return
    if config.insecure_anonymous:
        raise ConfigError(
            "this node asks for keys, and --insecure-anonymous says that it does not; leave it "
            "out, or forget all keys with `curlew security open`"
        )
    if not principals.keyring.keys:
        _LOG.warning(
            "nobody has a key, and this node asks for one: make the first with `curlew init` and "
            "the settings of this node"
        )


def refuse_older_copy(config: Config, metadata: Metadata) -> None:
    """Raise `ConfigError` when this node has seen newer keys and policies than the database has.

    A database without any principal is no copy: it has lost all, and no key can come alive.
    """
    principals = metadata.principals
    known = remembered_version(config.data_dir)
    principals.changes.known_version = max(principals.changes.known_version, known)
    if principals.keyring.version < known and principals.keyring.principals:
        error = regressed(principals.keyring.version, known)
        raise ConfigError(f"{error.code}: {error.detail}; {error.hint}")
    remember(config, principals.keyring)


def remember(config: Config, keyring: Keyring) -> None:
    """Beside the store: neither the loss of the database nor an old copy of it takes this back."""
    if keyring.is_closed:
        remember_closed(config.data_dir)
    remember_version(config.data_dir, keyring.version)


def narrow_files(config: Config) -> None:
    """Take from other users what they could read of this node's files."""
    narrow(everything_in(config.data_dir / "store"))
    file = sqlite_file_of(config.database)
    if file is not None:
        narrow(files_of_sqlite(file))
