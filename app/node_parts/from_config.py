"""What a node makes of its settings, before it opens anything."""

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from app.broker import BrokerConfig
from app.broker.hooks.hook_loading import load_hooks
from app.broker.hooks.hooks import Hooks, NamedHook, UnusableHook
from app.config import LOG_CACHE_MIB_MIN, Config, ConfigError, DataDirectoryUnusable
from app.domain.clock import Clock
from app.domain.limits import MIB, Limits
from app.domain.shortages import HINTS, shortage_of
from app.runtime.machine import gives_free_memory_back, memory_bytes
from app.runtime.private_files import make_private_directory
from app.runtime.secure.cluster_secret import ClusterSecret
from app.runtime.secure.tls_files import TlsFiles
from app.runtime.secure.tokens import TokenSettings, TokenVerifier
from app.store import StoreConfig

if TYPE_CHECKING:  # an extra, imported where it is on
    from app.runtime.span_export import SpanExport

LOG_CACHE_DIVISOR: Final = 16
"""The part of the machine's memory that the newest of the log may fill where new memory is dear;
what is read again and again may fill as much."""


class SecureFiles(NamedTuple):
    """What stands in files that the settings name."""

    tls: TlsFiles | None
    """None: plain HTTP."""
    cluster_tls: TlsFiles | None
    """None: nodes speak without TLS to each other."""
    tokens: TokenVerifier | None
    """None: no tokens are taken."""
    secret: ClusterSecret | None
    """None: the node listens for no others."""

    @classmethod
    def of(cls, config: Config, clock: Clock) -> Self:
        """Read them. Raises `UnusableCertificate` or `ConfigError`."""
        return cls(
            TlsFiles.of(config.tls_cert_file, config.tls_key_file, config.tls_client_ca_file),
            TlsFiles.of_nodes(
                config.cluster_tls_cert_file,
                config.cluster_tls_key_file,
                config.cluster_tls_ca_file,
            ),
            _tokens_of(config, clock),
            ClusterSecret.of(config.cluster_secret_file),
        )


def broker_config_of(config: Config) -> BrokerConfig:
    """Of each broker of this node."""
    return BrokerConfig(
        auto_create_topics=config.auto_create_topics,
        auto_create_groups=config.auto_create_groups,
        leases_per_principal_max=config.quota_leases,
    )


def cluster_url_of(config: Config) -> str:
    """Where other nodes reach it; empty: nowhere."""
    if config.cluster_url or not config.cluster_listen:
        return config.cluster_url.rstrip("/")
    return f"{'https' if config.has_cluster_tls else 'http'}://{config.cluster_listen}"


def advertised_url(config: Config) -> str:
    """Where clients reach the node, as far as it knows."""
    if config.advertise_url:
        return config.advertise_url.rstrip("/")
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"{'https' if config.has_tls else 'http'}://{host}:{config.port}"


def made_directory(config: Config) -> Path:
    """The directory of the store, made where it is not there. Raises `OSError`."""
    root = config.data_dir / "store"
    make_private_directory(config.data_dir)
    make_private_directory(root)
    return root


def store_config_of(config: Config, limits: Limits) -> StoreConfig:
    """How the store is opened."""
    return StoreConfig(
        segment_bytes=config.segment_bytes,
        record_bytes_max=min(limits.body_bytes_max + MIB // 16, config.segment_bytes - MIB),
        log_cache_bytes=log_cache_bytes(config),
        store_time_from_clock=config.store_time_from_clock,
    )


def unusable_directory(config: Config, error: OSError) -> DataDirectoryUnusable:
    """What is told when the data directory cannot be used."""
    shortage = shortage_of(error)
    hint = "name one that this user may write with --data-dir"
    return DataDirectoryUnusable(
        f"the data directory {config.data_dir} cannot be used: {error.strerror}; "
        f"{HINTS[shortage] if shortage else hint}"
    )


def log_cache_bytes(config: Config) -> int | None:
    """How much of the log is to stay in memory, in bytes; None: as the kernel decides."""
    if config.log_cache_mib is not None:
        return config.log_cache_mib * MIB or None
    if not gives_free_memory_back():
        return None
    return max(memory_bytes() // LOG_CACHE_DIVISOR, LOG_CACHE_MIB_MIN * MIB)


def log_cache_note(config: Config) -> str | None:
    """What an operator is told who did not choose how much of the log stays in memory."""
    kept = log_cache_bytes(config)
    if config.log_cache_mib is not None or kept is None:
        return None
    return (
        "this machine gives free memory back to its host, which makes new memory slow: of the log "
        f"the newest {kept // MIB} MiB stay in memory (setting log_cache_mib)"
    )


def _tokens_of(config: Config, clock: Clock) -> TokenVerifier | None:
    if config.oidc_jwks_file is None:
        return None
    settings = TokenSettings(
        config.oidc_issuer,
        config.oidc_audience,
        config.oidc_roles_claim,
        dict(config.oidc_roles),
        config.oidc_lifetime_max,
    )
    return TokenVerifier(settings, config.oidc_jwks_file, clock.now_ms)


def spans_of(config: Config, node_id: str) -> "SpanExport | None":
    """Raises `ConfigError` when spans are asked for and the extra is not installed."""
    if not config.otel_traces:
        return None
    try:
        from app.runtime.span_export import SpanExport
    except ImportError as error:
        raise ConfigError(str(error)) from error
    return SpanExport(node_id)


def hooks_of(config: Config) -> list[NamedHook]:
    """The plug-ins that are on. Raises `ConfigError`."""
    try:
        hooks = load_hooks(config.hooks)
        Hooks(hooks)
    except UnusableHook as error:
        raise ConfigError(f"hooks: {error}") from error
    return hooks
