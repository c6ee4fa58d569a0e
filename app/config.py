"""Configuration: environment, then a TOML file, then flags; each wins over the one before.

Read once, checked as a whole (every problem is reported, not the first), frozen. An unknown name is
refused with the nearest known one: a typo must not silently mean the default.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from app.domain.limits import ContradictingLimits, Limits
from app.domain.names import nearest
from app.runtime.closed_marker import is_closed_here
from app.runtime.secure.secret_files import UnusableSecretFile, read_secret
from app.setting_kinds import is_any_host, is_loopback, number
from app.settings import (
    DEFAULT_PORT,
    LOG_CACHE_MIB_MIN,
    SETTINGS,
    AuthMode,
    Config,
    ConfigError,
    DataDirectoryUnusable,
    Setting,
)

__all__ = [
    "DEFAULT_PORT",
    "ENVIRONMENT_PREFIX",
    "LIMIT_PREFIX",
    "LOG_CACHE_MIB_MIN",
    "NAMES",
    "OF_CLIENTS",
    "SETTINGS",
    "AuthMode",
    "Config",
    "ConfigError",
    "DataDirectoryUnusable",
    "Setting",
    "load_config",
    "parsed_setting",
]

_PASSWORD: Final = re.compile(r"://[^/?#]*:[^/?#]*@|[?&]password=")
"""In a URL of a database."""
_HIDDEN: Final = "***"
ENVIRONMENT_PREFIX: Final = "CURLEW_"
_DATABASE_URL: Final = "database_url"
_DATABASE_URL_FILE: Final = "database_url_file"

_PARSERS: Final = {name: setting.kind.parse for name, setting in SETTINGS.items()}
assert {*_PARSERS, "limits", "sources"} == {item.name for item in fields(Config)}

LIMITS_TABLE: Final = "limits"
LIMIT_PREFIX: Final = "limit_"
LIMIT_MAX: Final = 2**62
_LIMIT_PARSERS: Final = {
    LIMIT_PREFIX + item.name: number(1, LIMIT_MAX).parse for item in fields(Limits)
}
_ALL_PARSERS: Final[Mapping[str, Callable[[str], object]]] = {**_PARSERS, **_LIMIT_PARSERS}

NAMES: Final = tuple(SETTINGS)
"""Every setting, as in the file; CURLEW_NAME in the environment, --na-me as a flag."""


def parsed_setting(name: str, text: str) -> object:
    """The value of a setting, a limit under its name with `limit_`. Raises `ValueError`."""
    return _ALL_PARSERS[name](text)


def load_config(
    environment: Mapping[str, str],
    flags: Mapping[str, str],
    file: Path | None = None,
    defaults: Mapping[str, str] | None = None,
    *,
    listens: bool = True,
) -> Config:
    """The configuration from all sources, or `ConfigError`. Values are text as it was given.

    `listens=False`, for a command that serves nobody: an address on which a node would be refused
    is then no reason to refuse the command that the refusal names.
    """
    problems: list[str] = []
    given = {
        "environment": _from_environment(environment, problems),
        "file": _from_file(file, problems) if file else {},
        "flag": flags,
    }
    values = dict(defaults or {})
    sources: dict[str, str] = {}
    for source, named in given.items():
        values |= named
        sources |= dict.fromkeys(named, source)
    parsed: dict[str, Any] = {}
    for name, text in values.items():
        try:
            parsed[name] = _ALL_PARSERS[name](text)
        except ValueError as error:
            problems.append(f"{name} = {_shown(name, text)!r}: {error}")
    limits = _limits(
        {name: parsed.pop(name) for name in _LIMIT_PARSERS if name in parsed}, problems
    )
    if _PASSWORD.search(flags.get(_DATABASE_URL, "")):
        problems.append(
            "--database-url with a password is read by everybody on this machine who lists its "
            "processes; write the URL to a file of mode 0600 and say --database-url-file FILE"
        )
    _read_url(parsed, sources, problems)
    config = Config() if problems else Config(**parsed, limits=limits, sources=sources)
    if not problems:
        problems += _contradictions(config)
        if listens:
            problems += _in_clear(config)
    if problems:
        raise ConfigError("\n".join(problems))
    return config


def _read_url(parsed: dict[str, Any], sources: dict[str, str], problems: list[str]) -> None:
    """Put what `database_url_file` holds in the place of `database_url`."""
    file = parsed.get(_DATABASE_URL_FILE)
    if file is None:
        return
    if parsed.get(_DATABASE_URL):
        problems.append("database_url and database_url_file say the same thing: give one of them")
        return
    try:
        parsed[_DATABASE_URL] = read_secret(file, _DATABASE_URL_FILE).decode().strip()
    except (UnusableSecretFile, UnicodeDecodeError) as error:
        problems.append(str(error) if isinstance(error, UnusableSecretFile) else f"{file}: no text")
    sources[_DATABASE_URL] = sources[_DATABASE_URL_FILE]


def _shown(name: str, text: str) -> str:
    """A value that cannot be used, in what an operator is told."""
    return _HIDDEN if name == _DATABASE_URL else text


def _contradictions(config: Config) -> Iterator[str]:
    """What is wrong with settings that are right one by one."""
    of_tokens = (config.oidc_issuer, config.oidc_audience, config.oidc_jwks_file)
    if any(of_tokens) and not all(of_tokens):
        yield "oidc_issuer, oidc_audience and oidc_jwks_file go together: give all three, or none"
    yield from _of_the_cluster(config)
    yield from _of_replicas(config)
    if (config.tls_cert_file is None) != (config.tls_key_file is None):
        yield "tls_cert_file and tls_key_file go together: give both, or none"
    elif config.tls_client_principals and config.tls_client_ca_file is None:
        yield "tls_client_principals needs tls_client_ca_file: who signs those certificates"
    elif config.tls_client_ca_file is not None and not config.has_tls:
        yield "tls_client_ca_file needs tls_cert_file and tls_key_file: there is no TLS without"


def _in_clear(config: Config) -> Iterator[str]:
    """Where the node would listen for other machines without TLS, and nobody said so."""
    if not (config.is_local or config.has_tls or config.insecure_anonymous or config.plaintext):
        yield (
            f"host = {config.host!r} can be reached by other machines, and keys and messages would "
            f"go there in clear. {_commands_that_help(config)}"
            "Where a proxy before this node has TLS, say --plaintext (CURLEW_PLAINTEXT=true) "
            "in place of the files. Where only people you trust reach it and need no key, say "
            "--insecure-anonymous (CURLEW_INSECURE_ANONYMOUS=true). For this machine alone, "
            "use 127.0.0.1."
        )
    if config.cluster_listen and not _may_listen(config):
        yield (
            f"cluster_listen = {config.cluster_listen!r} can be reached by other machines, and"
            " requests go there in clear: give --cluster-tls-cert-file, --cluster-tls-key-file"
            " and --cluster-tls-ca-file; or say --plaintext where the network between the nodes"
            " is yours alone (a private network, WireGuard, a service mesh)"
        )


def _commands_that_help(config: Config) -> str:
    """What to run before a start on an address that others reach."""
    place = f"--data-dir {config.data_dir}"
    if config.database_url_file is not None:
        place += f" --database-url-file {config.database_url_file}"
    elif config.database_url:
        place += " --database-url …"
    if config.secret_key_file is not None:
        place += f" --secret-key-file {config.secret_key_file}"
    certificate = "--tls-cert-file cert.pem --tls-key-file key.pem"
    serve = f"  curlew serve {place} --host {config.host} {certificate}\n\n"
    if _is_known_closed(config):
        return f"Give the node a certificate:\n\n{serve}"
    return f"Make a key, and give the node a certificate:\n\n  curlew init {place}\n{serve}"


def _is_known_closed(config: Config) -> bool:
    """False also where this user may not look."""
    try:
        return is_closed_here(config.data_dir)
    except OSError:
        return False


def _of_the_cluster(config: Config) -> Iterator[str]:
    if bool(config.cluster_listen) != (config.cluster_secret_file is not None):
        yield "cluster_listen and cluster_secret_file go together: give both, or none"
    elif config.cluster_listen.endswith(":0"):
        yield (
            f"cluster_listen = {config.cluster_listen!r} names no port that other nodes can know:"
            " choose one"
        )
    elif config.cluster_url and not config.cluster_listen:
        yield "cluster_url needs cluster_listen: where the node listens for other nodes"
    elif not config.has_cluster_tls and config.cluster_url.startswith("https:"):
        yield "cluster_url is https://, and the node has no cluster_tls_cert_file"
    yield from _of_cluster_tls(config)


def _of_replicas(config: Config) -> Iterator[str]:
    if config.replicas == 1:
        return
    said = f"replicas = {config.replicas}"
    if not config.database.startswith("postgres"):
        yield f"{said} needs PostgreSQL: name one with database_url_file (or database_url)"
    if not config.shard:
        yield f"{said} needs shard: the name that the nodes have in common"
    if not config.cluster_listen or config.cluster_secret_file is None:
        yield (
            f"{said} needs cluster_listen and cluster_secret_file: where the replicas of the shard"
            " reach each other, and the secret by which they know each other"
        )


def _may_listen(config: Config) -> bool:
    """Whether nothing goes in clear where it must not."""
    host = config.cluster_listen.rpartition(":")[0].strip("[]")
    is_meant = config.plaintext or config.insecure_anonymous
    return is_meant or config.has_cluster_tls or is_loopback(host)


def _of_cluster_tls(config: Config) -> Iterator[str]:
    of_tls = (config.cluster_tls_cert_file, config.cluster_tls_key_file, config.cluster_tls_ca_file)
    if any(of_tls):
        if not all(of_tls):
            yield (
                "cluster_tls_cert_file, cluster_tls_key_file and cluster_tls_ca_file go together:"
                " give all three, or none"
            )
        elif not config.cluster_listen:
            yield "cluster_tls_cert_file needs cluster_listen: where the node listens for others"
        elif not config.cluster_url and is_any_host(config.cluster_listen):
            yield (
                f"cluster_listen = {config.cluster_listen!r} is every address of the machine, and"
                " no certificate is of that: give cluster_url, where the other nodes reach it"
            )
        elif config.cluster_url.startswith("http:"):
            yield f"cluster_url = {config.cluster_url!r}: with cluster_tls_cert_file it is https://"


def _limits(given: Mapping[str, int], problems: list[str]) -> Limits:
    try:
        return Limits(**{name.removeprefix(LIMIT_PREFIX): value for name, value in given.items()})
    except ContradictingLimits as error:
        names = " and ".join(f"{LIMIT_PREFIX}{name}" for name in error.names)
        problems.append(f"{names} contradict each other: {error}")
        return Limits()


OF_CLIENTS: Final = frozenset(
    {"CURLEW_URL", "CURLEW_KEY", "CURLEW_COMMAND", "CURLEW_CONTEXT", "CURLEW_CONTEXTS"}
)
"""Variables of the Python client, its command and its fixtures, which a node beside it sees."""


def _from_environment(environment: Mapping[str, str], problems: list[str]) -> dict[str, str]:
    values = {}
    for variable, text in environment.items():
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in OF_CLIENTS:
            name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
            if _is_known(name, variable, problems):
                values[name] = text
    return values


def _from_file(path: Path, problems: list[str]) -> dict[str, str]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        problems.append(f"configuration file {path}: {error}")
        return {}
    limits = document.pop(LIMITS_TABLE, {})
    if not isinstance(limits, dict):
        problems.append(f"{LIMITS_TABLE} in {path} is a table: write [{LIMITS_TABLE}]")
        limits = {}
    values = document | {LIMIT_PREFIX + name: value for name, value in limits.items()}
    return {
        name: _text_of(value)
        for name, value in values.items()
        if _is_known(name, f"{name} in {path}", problems)
    }


def _text_of(value: object) -> str:
    """A value of the file as the environment would have it."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_known(name: str, shown: str, problems: list[str]) -> bool:
    if name in _ALL_PARSERS:
        return True
    match = nearest(name, _ALL_PARSERS)
    problems.append(f"{shown} is not a setting" + (f"; did you mean {match!r}?" if match else ""))
    return False
