"""How to reach the service: address, timeouts, retries, credentials, TLS. Parsed and checked once.

No I/O: a token in a file or in the environment is read by `credentials` on the machine that sends
the request. Invariant: no secret is in the `repr` of the options nor in an error, nor what was
given as the place of one, for it may be the secret. Called by `options` and `sink_options`.
"""

import re
from dataclasses import dataclass, field, replace
from typing import Final, Literal
from urllib.parse import urlsplit

from pyspark_curlew.errors import OptionConflict, OptionInvalid, OptionMissing
from pyspark_curlew.option_reader import HEADER_PREFIX, OptionReader

HTTP_NAMES: Final = (
    "endpoint",
    "token",
    "tokenFile",
    "tokenEnv",
    "username",
    "password",
    "tls.ca",
    "tls.cert",
    "tls.key",
    "tls.verify",
    HEADER_PREFIX,
    "connectTimeoutMs",
    "readTimeoutMs",
    "retryTimeoutMs",
    "compression",
)
Compression = Literal["none", "zstd"]
RETRY_TIMEOUT_MS: Final = 120_000
"""As Kafka's clients: a node that restarts, or moves to another machine, ends no query."""
LOAD_TIMEOUT_MS: Final = 10_000
"""Where somebody waits for the plan of a batch read: a wrong address shows soon."""
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_KEY: Final = re.compile(r"curlew_[0-9A-Za-z]{13}_[0-9A-Za-z]{49}")
"""The service's keys: id, and secret with its check sum."""
TIME_MS_MAX: Final = 24 * 3_600_000
"""No request waits for longer than a day; the system's calls do not take any number."""
_OWN_HEADERS: Final = frozenset(
    {
        "accept",
        "authorization",
        "content-encoding",
        "content-length",
        "content-type",
        "host",
        "idempotency-key",
        "prefer",
        "transfer-encoding",
    }
)


@dataclass(frozen=True, slots=True)
class Credentials:
    """At most one of: a bearer token (as it is, in a file, in the environment), a user."""

    token: str | None = field(default=None, repr=False)
    token_file: str | None = field(default=None, repr=False)
    token_env: str | None = field(default=None, repr=False)
    username: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Paths of PEM files, present on every machine that sends requests."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    verify: bool = True


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """How to reach the service. Times in milliseconds."""

    endpoints: tuple[str, ...]
    """Base addresses of one service, tried in turn."""
    connect_timeout_ms: int
    read_timeout_ms: int
    retry_timeout_ms: int
    """Attempts go on for so long after the first failure; 0: there is one attempt."""
    load_timeout_ms: int
    """The same while a batch read is planned."""
    credentials: Credentials = Credentials()
    tls: TlsOptions = TlsOptions()
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    compression: Compression = "none"
    """Of frames, in both directions."""
    to_leaders: bool = False
    """Pulls go to the node that leads the queue, where one is known and answers."""
    reads_any: bool = False
    """Pulls go to any node that has the queue in sync, and say so."""

    @property
    def for_load(self) -> "HttpOptions":
        """These, for planning a batch read."""
        return replace(self, retry_timeout_ms=self.load_timeout_ms)


def read_http_options(reader: OptionReader) -> HttpOptions:
    """Check what concerns the connection; raise `OptionMissing`, `-Invalid` or `-Conflict`."""
    endpoints = _endpoints(reader)
    return HttpOptions(
        endpoints=endpoints,
        connect_timeout_ms=reader.whole("connectTimeoutMs", 5000, minimum=1, maximum=TIME_MS_MAX),
        read_timeout_ms=reader.whole("readTimeoutMs", 30_000, minimum=1, maximum=TIME_MS_MAX),
        retry_timeout_ms=_retry_timeout_ms(reader, RETRY_TIMEOUT_MS),
        load_timeout_ms=_retry_timeout_ms(reader, LOAD_TIMEOUT_MS),
        credentials=_credentials(reader),
        tls=_tls(reader, endpoints),
        headers=_headers(reader),
        compression=reader.choice("compression", "none", "zstd"),
    )


def _retry_timeout_ms(reader: OptionReader, default: int) -> int:
    return reader.whole("retryTimeoutMs", default, minimum=0, maximum=TIME_MS_MAX)


def _endpoints(reader: OptionReader) -> tuple[str, ...]:
    found = [part.strip().rstrip("/") for part in reader.text("endpoint").split(",")]
    return tuple(dict.fromkeys(_endpoint(part) for part in found))


def _endpoint(endpoint: str) -> str:
    if not _is_address(endpoint):
        raise OptionInvalid(
            f"option 'endpoint' = {_without_user(endpoint)!r} is not a base address;"
            " it looks like http://host:8710, several are parted by commas"
        )
    if "@" in endpoint:
        raise OptionInvalid(
            "option 'endpoint' has a user or password in it; use 'username' and 'password'"
        )
    return endpoint


def _is_address(endpoint: str) -> bool:
    try:
        parts = urlsplit(endpoint)
        parts.port  # noqa: B018 - raises when it is no number of a port
    except ValueError:
        return False
    is_base = parts.scheme in {"http", "https"} and not parts.query and not parts.fragment
    return is_base and bool(parts.hostname) and re.fullmatch(r"[!-~]+", endpoint) is not None


def _without_user(address: str) -> str:
    """Without what may be a secret: a user, also where there is no scheme, and a query."""
    known = re.sub(r"^([A-Za-z]+://)?.*@", r"\1***@", address, flags=re.DOTALL)
    return re.sub(r"\?.*", "?***", known, flags=re.DOTALL)


def _credentials(reader: OptionReader) -> Credentials:
    reader.at_most_one("token", "tokenFile", "tokenEnv", "username")
    given = reader.given("username", "password")
    if len(given) == 1:
        missing = "password" if given == ["username"] else "username"
        raise OptionMissing(f"option {missing!r} is required beside {given[0]!r}")
    found = Credentials(
        token=reader.text_or_none("token"),
        token_file=reader.text_or_none("tokenFile"),
        token_env=reader.text_or_none("tokenEnv"),
        username=reader.text_or_none("username"),
        password=reader.text_or_none("password"),
    )
    if found.username is not None and ":" in found.username:
        raise OptionInvalid("option 'username' has a colon in it; basic authentication has no way")
    if found.token is not None and not re.fullmatch(r"[!-~]+", found.token):
        raise OptionInvalid("option 'token' has a space or a character beyond ASCII in it")
    env = found.token_env
    if env is not None and (_KEY.search(env) or not _VARIABLE.fullmatch(env)):
        raise OptionInvalid(
            "option 'tokenEnv' is not the name of an environment variable, as CURLEW_TOKEN is; a"
            " key itself goes into 'token' (what was given is not repeated here)"
        )
    if found.token_file is not None and _KEY.search(found.token_file):
        raise OptionInvalid(
            "option 'tokenFile' is a key and not the path of a file; a key itself goes into"
            " 'token' (it is not repeated here)"
        )
    return found


def _tls(reader: OptionReader, endpoints: tuple[str, ...]) -> TlsOptions:
    given = reader.given("tls.ca", "tls.cert", "tls.key", "tls.verify")
    if given and not all(endpoint.startswith("https:") for endpoint in endpoints):
        raise OptionConflict(f"option {given[0]!r} needs an 'endpoint' that begins with https:")
    if "tls.key" in given and "tls.cert" not in given:
        raise OptionMissing("option 'tls.cert' is required beside 'tls.key'")
    return TlsOptions(
        ca=reader.text_or_none("tls.ca"),
        cert=reader.text_or_none("tls.cert"),
        key=reader.text_or_none("tls.key"),
        verify=reader.flag("tls.verify", default=True),
    )


def _headers(reader: OptionReader) -> tuple[tuple[str, str], ...]:
    for name, value in reader.headers.items():
        option = HEADER_PREFIX + name
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _OWN_HEADERS:
            raise OptionInvalid(f"option {option!r} does not name a header that can be given")
        if not value.isprintable():
            raise OptionInvalid(f"option {option!r} has a line break or control character in it")
        if any(ord(character) > 0xFF for character in value):
            raise OptionInvalid(f"option {option!r} has a character in it that no header can have")
    return tuple(sorted(reader.headers.items()))
