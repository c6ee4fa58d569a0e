"""Every setting of a node: its name, what it may be, what it is about, and what it is by default.

What is read, from where, and what contradicts what, is in `config`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from app.domain.limits import MIB, REPLICAS_MAX, Limits
from app.domain.positions import FlushMode
from app.setting_kinds import (
    BOOLEAN,
    FILE,
    QUOTA,
    Kind,
    address,
    addresses,
    choice,
    is_loopback,
    names,
    number,
    number_or_zero,
    pairs,
    shard_name,
    url,
)

DEFAULT_PORT: Final = 8710
SEGMENT_MIB_MIN: Final = 5
FLUSH_INTERVAL_MS_MIN: Final = 10
FLUSH_INTERVAL_MS_MAX: Final = 60_000
LOG_CACHE_MIB_MIN: Final = 64
"""A few steps of `cache_bound`, so that who reads at the end of the log finds all in memory."""
LOG_CACHE_MIB_MAX: Final = 2**30
POLICY_AGE_MAX: Final = 366 * 86_400
OIDC_LIFETIME_MAX: Final = 366 * 86_400


class AuthMode(StrEnum):
    """Whether API keys are needed: once the first was made, or from the start."""

    AUTO = "auto"
    REQUIRED = "required"


class ConfigError(Exception):
    """The configuration cannot be used; the text lists every problem."""


class DataDirectoryUnusable(ConfigError):
    """The data directory cannot be made or written; the text says why."""


@dataclass(frozen=True, slots=True)
class Config:
    """What an operator may set about a node."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    data_dir: Path = Path("data")
    database_url: str = field(default="", repr=False)
    """Empty: SQLite in the data directory. Not in `repr`: it may hold a password."""
    database_url_file: Path | None = None
    """A file that holds `database_url`."""
    flush: FlushMode = FlushMode.SYNC
    """Flush mode of topics that do not name one."""
    flush_interval_ms: int = 500
    """Between two syncs of what nobody waits for: what a power loss may cost an async topic."""
    segment_mib: int = 256
    log_cache_mib: int | None = None
    """The newest MiB of the log that stay in memory. 0: as many as the kernel keeps. None: as many,
    but a sixteenth of the memory where the machine gives free memory back to its host."""
    store_time_from_clock: bool = False
    """Begin store times anew at the clock, after a wrong jump of it."""
    auto_create_topics: bool = False
    auto_create_groups: bool = True
    """A receive, stream, commit or heartbeat makes the group that it names."""
    insecure_anonymous: bool = False
    """Serve other machines without authentication."""
    auth: AuthMode = AuthMode.AUTO
    policy_age_max: int = 0
    """Seconds that a node goes on without hearing of keys and policies; 0: as long as it takes."""
    plaintext: bool = False
    """Serve other machines over plain HTTP: TLS ends before this node."""
    tls_cert_file: Path | None = None
    """PEM, with the certificates between it and the authority. None: plain HTTP."""
    tls_key_file: Path | None = None
    tls_client_ca_file: Path | None = None
    """PEM of the authorities whose clients may show a certificate in place of a key."""
    tls_client_principals: tuple[tuple[str, str], ...] = ()
    """Names in clients' certificates, and the principals that they are."""
    oidc_issuer: str = ""
    """Whose JSON Web Tokens count; with the next two."""
    oidc_audience: str = ""
    oidc_jwks_file: Path | None = None
    oidc_roles_claim: str = "roles"
    oidc_roles: tuple[tuple[str, str], ...] = ()
    """Values of that claim, and the roles that they are here."""
    oidc_lifetime_max: int = 86_400
    """Seconds; tokens that are made for longer do not count. 0: any do."""
    secret_key_file: Path | None = None
    """What signs and encrypts for all nodes; not in the data directory."""
    admin_key_file: Path | None = None
    """Where the first administrator's key is, or is put."""
    quota_requests_per_second: int = 0
    """Of each principal, as the next five; 0: as many as there are."""
    quota_bytes_in_per_second: int = 0
    quota_bytes_out_per_second: int = 0
    quota_concurrent_requests: int = 0
    quota_parked_polls: int = 0
    quota_connections: int = 0
    quota_topics: int = 0
    """That a principal may have made and that are there, as the next one."""
    quota_groups: int = 0
    quota_schedules: int = 0
    quota_leases: int = 0
    """Of each principal, over all groups."""
    quota_topic_requests_per_second: int = 0
    """Of each topic, as the next two."""
    quota_topic_bytes_in_per_second: int = 0
    quota_topic_bytes_out_per_second: int = 0
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks of proxies whose X-Forwarded-For and -Proto are believed."""
    hooks: tuple[str, ...] = ()
    """Names of the plug-ins that are on, in their order."""
    otel_traces: bool = False
    """Make OpenTelemetry's spans; needs the extra `otel`."""
    trace_hours: int = 72
    """How long the trails of messages are kept."""
    audit_days: int = 400
    """How long entries of the audit are kept."""
    shard: str = ""
    """Name of the node's shard. Empty: the one that its store has; a lone one its store's id."""
    advertise_url: str = ""
    """Where clients reach the node. Empty: host and port."""
    cluster_listen: str = ""
    """Address and port for the other nodes. Empty: none."""
    cluster_url: str = ""
    """Where they reach it. Empty: made of `cluster_listen`."""
    cluster_tls_cert_file: Path | None = None
    """PEM: what it shows the other nodes. None: the cluster port speaks no TLS."""
    cluster_tls_key_file: Path | None = None
    cluster_tls_ca_file: Path | None = None
    """PEM of the authorities of the nodes' certificates."""
    cluster_secret_file: Path | None = None
    """What the nodes of the cluster share and prove to each other."""
    replicas: int = 1
    """How many replicas the shard is to have; 1: this node is alone with it."""
    zone: str = ""
    """Where it stands: a rack, a room, an availability zone."""
    log_level: str = "info"
    access_log: bool = False
    """One JSON line per request."""
    limits: Limits = field(default_factory=Limits)
    """Set by CURLEW_LIMIT_NAME, or in the table [limits] of the file."""
    sources: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """Setting → environment, file or flag; what is not in it has its default."""

    @property
    def database(self) -> str:
        """The URL of the metadata database."""
        return self.database_url or f"sqlite:///{(self.data_dir / 'metadata.db').absolute()}"

    @property
    def segment_bytes(self) -> int:
        """Size of a commit-log segment."""
        return self.segment_mib * MIB

    @property
    def has_cluster_tls(self) -> bool:
        """Whether nodes speak TLS to each other."""
        return self.cluster_tls_cert_file is not None

    @property
    def has_tls(self) -> bool:
        """Whether the node speaks TLS itself."""
        return self.tls_cert_file is not None

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the node."""
        return is_loopback(self.host)


class Setting(NamedTuple):
    """A setting as `curlew serve --help` and the page of settings describe it."""

    kind: Kind
    meaning: str


SETTINGS: Final[Mapping[str, Setting]] = {
    "host": Setting(Kind(str, "a name or an address"), "Address to listen on."),
    "port": Setting(number(0, 65_535), "Port to listen on. 0: a free one."),
    "data_dir": Setting(
        Kind(Path, "a path"), "Directory of the log and, with SQLite, of the metadata."
    ),
    "database_url": Setting(
        Kind(str, "sqlite:///file or postgresql://user:password@host:port/name"),
        "Metadata database. Empty: the file metadata.db in the data directory.",
    ),
    "database_url_file": Setting(
        FILE, "The file that holds the URL, in place of `database_url`; for a URL with a password."
    ),
    "flush": Setting(
        choice("sync", "async", made=FlushMode),
        "Flush mode of topics that name none. sync: a send is answered when its data is on the "
        "medium; async: when it is in the log.",
    ),
    "flush_interval_ms": Setting(
        number(FLUSH_INTERVAL_MS_MIN, FLUSH_INTERVAL_MS_MAX),
        "Milliseconds between two syncs of messages that nobody waits for: what a power loss may "
        "cost topics with async flush.",
    ),
    "segment_mib": Setting(
        number(SEGMENT_MIB_MIN, 4_096),
        "Size of a segment of the commit log in MiB. Fixed at the first start.",
    ),
    "log_cache_mib": Setting(
        number_or_zero(LOG_CACHE_MIB_MIN, LOG_CACHE_MIB_MAX),
        "Newest MiB of the log to keep in memory, and up to as many older ones that are read again "
        "and again. 0: as many as the kernel keeps. Unset: 0, but 1/16 of the memory where the "
        "machine gives free memory back to its host.",
    ),
    "store_time_from_clock": Setting(
        BOOLEAN,
        "Begin store times anew at the node's clock, after a wrong jump of it that is set right: "
        "`CLOCK_BEHIND`. For one start.",
    ),
    "auto_create_topics": Setting(
        BOOLEAN, "A first send makes the topic. `curlew dev` sets it to true."
    ),
    "auto_create_groups": Setting(
        BOOLEAN, "A receive, stream, commit or heartbeat makes the group that it names."
    ),
    "insecure_anonymous": Setting(
        BOOLEAN, "Serve other machines without authentication: everybody there is an operator."
    ),
    "auth": Setting(
        choice("auto", "required", made=AuthMode),
        "Who needs an API key. auto: everybody, once the first was made (`curlew init`); required: "
        "everybody from the start, for nodes behind a proxy, a tunnel or a sidecar.",
    ),
    "policy_age_max": Setting(
        number(0, POLICY_AGE_MAX),
        "Seconds that a node with keys goes on to serve when it cannot ask the metadata database "
        "for revoked keys and changed policies; then it answers 503. 0: as long as it takes.",
    ),
    "plaintext": Setting(
        BOOLEAN, "Serve other machines, with keys, over plain HTTP: TLS ends before this node."
    ),
    "tls_cert_file": Setting(
        FILE,
        "Certificate for HTTPS, with those between it and its authority; read again when replaced.",
    ),
    "tls_key_file": Setting(FILE, "Its private key, which nobody but the node's user may read."),
    "tls_client_ca_file": Setting(
        FILE, "Authorities whose clients may show a certificate where they send no key."
    ),
    "tls_client_principals": Setting(
        Kind(pairs, "DNS:name=principal, URI:name=principal, …"),
        "Exact names in clients' certificates, and the principals that they are.",
    ),
    "oidc_issuer": Setting(Kind(str, "an address"), "Issuer whose JSON Web Tokens are taken."),
    "oidc_audience": Setting(Kind(str, "a name"), "Audience that a token has to be for."),
    "oidc_jwks_file": Setting(
        FILE, "Public keys of the issuer (JWKS); read again when replaced. No key is fetched."
    ),
    "oidc_roles_claim": Setting(Kind(str, "a name"), "Claim of a token that holds roles."),
    "oidc_roles": Setting(
        Kind(pairs, "value=role, value=role, …"),
        "Values of that claim, and the roles that they are here. Other values give no role.",
    ),
    "oidc_lifetime_max": Setting(
        number(0, OIDC_LIFETIME_MAX),
        "Seconds from when a token was issued until it expires; one that is made for longer is "
        "refused, since no token can be revoked by itself. 0: any.",
    ),
    "secret_key_file": Setting(
        FILE,
        "Secret of all nodes of a cluster, 32 bytes or more: it signs the audit. Keep a copy, and "
        "not in the data directory.",
    ),
    "admin_key_file": Setting(
        FILE,
        "API key of the first administrator. A start makes both where there is no administrator: "
        "with the key that the file holds, or with a new one that it writes there.",
    ),
    "quota_requests_per_second": Setting(QUOTA, "Requests a second of a principal. 0: any."),
    "quota_bytes_in_per_second": Setting(
        QUOTA, "Bytes of requests' bodies a second of a principal. 0: any."
    ),
    "quota_bytes_out_per_second": Setting(
        QUOTA, "Bytes of answers' bodies a second of a principal. 0: any."
    ),
    "quota_concurrent_requests": Setting(
        QUOTA, "Requests of a principal at a time, polls and streams that wait too. 0: any."
    ),
    "quota_parked_polls": Setting(
        QUOTA,
        "Requests of a principal at a time that ask to wait for something. 0: any.",
    ),
    "quota_connections": Setting(
        QUOTA, "Connections of a principal at a time: those on which it asked last. 0: any."
    ),
    "quota_topics": Setting(
        QUOTA, "Topics that are there and that a principal has made, by a use as well. 0: any."
    ),
    "quota_groups": Setting(
        QUOTA, "Consumer groups that are there and that a principal has made. 0: any."
    ),
    "quota_schedules": Setting(
        QUOTA, "Schedules that are there and that a principal has changed last. 0: any."
    ),
    "quota_leases": Setting(
        QUOTA, "Messages that a principal holds at a time on a node, over all groups. 0: any."
    ),
    "quota_topic_requests_per_second": Setting(QUOTA, "Requests a second to a topic. 0: any."),
    "quota_topic_bytes_in_per_second": Setting(
        QUOTA, "Bytes of requests' bodies a second to a topic. 0: any."
    ),
    "quota_topic_bytes_out_per_second": Setting(
        QUOTA, "Bytes of answers' bodies a second from a topic. 0: any."
    ),
    "trusted_proxies": Setting(
        Kind(addresses, "addresses and networks, separated by commas"),
        "Proxies whose X-Forwarded-For and X-Forwarded-Proto are believed.",
    ),
    "access_log": Setting(BOOLEAN, "Log every request as one line of JSON."),
    "hooks": Setting(
        Kind(names, "names of entry points, with commas"),
        "Plug-ins that are asked about sends, and told of sends and settles.",
    ),
    "otel_traces": Setting(
        BOOLEAN, "Make OpenTelemetry's spans of sends, receives and settles; OTEL_* says where to."
    ),
    "trace_hours": Setting(number(1, 24 * 365), "Hours that the trails of messages are kept."),
    "audit_days": Setting(number(1, 36_500), "Days that entries of the audit are kept."),
    "shard": Setting(
        Kind(shard_name, "letters, digits, - and _"),
        "Name of the shard that the node's store is: the log of one node, which has its part of the"
        " queues. Fixed at the first start. Unset: the store's id; needed to join others.",
    ),
    "advertise_url": Setting(
        Kind(url, "http://host:port"),
        "Where clients reach the node; routes name it. Unset: made of host and port.",
    ),
    "cluster_listen": Setting(
        Kind(address, "host:port"),
        "Where the node listens for the other nodes of the cluster, with `cluster_secret_file`."
        " Unset: clients have to ask the node that leads a shard themselves.",
    ),
    "cluster_url": Setting(
        Kind(url, "http://host:port"),
        "Where the other nodes reach `cluster_listen`. Unset: at that address.",
    ),
    "cluster_tls_cert_file": Setting(
        FILE,
        "Certificate that the node shows the other nodes, of the host that `cluster_url` names;"
        " read again when replaced. Unset: nodes speak without TLS to each other.",
    ),
    "cluster_tls_key_file": Setting(FILE, "Its private key."),
    "cluster_tls_ca_file": Setting(FILE, "Authorities that the nodes' certificates are of."),
    "cluster_secret_file": Setting(
        FILE,
        "Secret of all nodes of a cluster, 32 bytes or more, by which they know each other: whoever"
        " has it may do everything. `openssl rand -hex 32` makes one.",
    ),
    "replicas": Setting(
        number(1, REPLICAS_MAX),
        "Nodes that are to have the shard. Fixed when the first of them starts. 1: this node alone."
        " More need PostgreSQL, `shard` and `cluster_listen`.",
    ),
    "zone": Setting(Kind(str, "a name"), "Where the node stands: a rack, a room, a zone."),
    "log_level": Setting(
        choice("debug", "info", "warning", "error"), "Lowest level that is logged, to stderr."
    ),
}
"""Every setting but the limits."""
