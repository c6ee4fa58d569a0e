"""Principals, their keys and policies as administrators see and set them, and the networks that a
principal is let in from. Pure."""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple

from app.domain.access.audit import Shown
from app.domain.access.policies import Pattern, Policy
from app.domain.errors import InvalidRequest
from app.domain.limits import NETWORKS_OF_A_PRINCIPAL_MAX
from app.domain.positions import TimestampMs

_MAPPED_BITS: Final = 96
"""Of an IPv6 address, before the IPv4 address that it holds."""


class Fence:
    """Networks that somebody is let in from. Pure, made once for what is known at a time."""

    __slots__ = ("_networks",)

    def __init__(self, networks: Iterable[str]) -> None:
        """As `read_networks` has written them."""
        self._networks = tuple(map(ip_network, networks))

    def has(self, address: str) -> bool:
        """Whether the address is in one of them. What is no address, as of a client without one, or
        as a proxy may say, is in none; an IPv4 address in the form of IPv6 is the IPv4 one."""
        try:
            found = ip_address(address)
        except ValueError:
            return False
        mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
        return any((mapped or found) in network for network in self._networks)


def fence_of(networks: Sequence[str]) -> Fence | None:
    """None: from anywhere."""
    return Fence(networks) if networks else None


def read_networks(texts: Sequence[str]) -> tuple[str, ...]:
    """Networks as they are kept: each once, an address without the length of its prefix. Raises
    `InvalidRequest`, which points to the entry."""
    if len(texts) > NETWORKS_OF_A_PRINCIPAL_MAX:
        raise InvalidRequest(
            f"{len(texts)} networks; a principal is let in from at most "
            f"{NETWORKS_OF_A_PRINCIPAL_MAX}",
            hint="name wider networks",
            pointer="/allowed_from",
        )
    return tuple(dict.fromkeys(_network(text, at) for at, text in enumerate(texts)))


def _network(text: str, at: int) -> str:
    address, slash, length = text.partition("/")
    if "%" in address or (slash and not length.isdecimal()):
        raise _no_network(text, at)
    try:
        found: IPv4Network | IPv6Network = ip_network(text, strict=False)
    except ValueError:
        raise _no_network(text, at) from None
    if found.network_address != ip_address(address):
        raise _no_network(text, at, f"{text} has an address inside of a network: write {found}")
    if isinstance(found, IPv6Network) and found.prefixlen >= _MAPPED_BITS:
        mapped = found.network_address.ipv4_mapped
        if mapped is not None:
            found = IPv4Network((mapped, found.prefixlen - _MAPPED_BITS))
    is_one = found.prefixlen == found.max_prefixlen
    return str(found.network_address if is_one else found)


def _no_network(text: str, at: int, detail: str = "") -> InvalidRequest:
    return InvalidRequest(
        detail or f"{text!r} is no network, and no address",
        hint="write 10.0.0.0/8, 2001:db8::/32, or one address",
        pointer=f"/allowed_from/{at}",
    )


class PrincipalSettings(NamedTuple):
    """What is set on a principal."""

    roles: tuple[str, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    """The names that its roles are kept to; none: all."""
    namespace: str = ""
    """The one that it is bound to; empty: none."""
    is_disabled: bool = False
    """Its keys work no more; it keeps them."""
    allowed_from: tuple[str, ...] = ()
    """Networks, as `read_networks` writes them; none: it is let in from anywhere."""

    def shown(self) -> Shown:
        """For the audit."""
        return {
            "roles": list(self.roles),
            "resources": [str(each) for each in self.patterns],
            "namespace": self.namespace,
            "disabled": self.is_disabled,
            "allowed_from": list(self.allowed_from),
        }


class ListedKey(NamedTuple):
    """A key as operators see it."""

    key_id: str
    created_ms: TimestampMs
    expires_ms: TimestampMs | None
    """None: never."""
    last_used_ms: TimestampMs | None
    """To the minute; None: not yet, as far as is written down."""
    is_live: bool


class Account(NamedTuple):
    """A principal with its keys."""

    name: str
    settings: PrincipalSettings
    keys: tuple[ListedKey, ...]
    created_ms: TimestampMs
    version: int
    """Of all that says who may do what, at its last change."""


class StoredPolicy(NamedTuple):
    """A policy as it is kept."""

    policy: Policy
    created_ms: TimestampMs
    version: int
