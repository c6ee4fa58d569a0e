"""How the text of a setting is read: numbers, choices, addresses. Each raises `ValueError` that
says what to write instead. Pure."""

import ipaddress
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

QUOTA_MAX: Final = 2**40
_SHARD: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_URL: Final = re.compile(r"https?://[^/\s?#@]+(/[^\s?#]*)?")
_ADDRESS: Final = re.compile(r"(\[[0-9a-fA-F:]+\]|[^:\s/]+):\d{1,5}")


class Kind(NamedTuple):
    """What a setting may be: how its text is read, and the same in words."""

    parse: Callable[[str], object]
    values: str


def boolean(text: str) -> bool:
    """Yes or no."""
    try:
        return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}[
            text.lower()
        ]
    except KeyError:
        raise ValueError("use true or false") from None


def number(low: int, high: int) -> Kind:
    """A whole number from `low` to `high`."""

    def parse(text: str) -> int:
        value = int(text) if text.lstrip("-").isdigit() else low - 1
        if not low <= value <= high:
            raise ValueError(f"use a whole number from {low} to {high}")
        return value

    return Kind(parse, f"{low} to {high}")


def names(text: str) -> tuple[str, ...]:
    """Names, with commas."""
    names = tuple(each.strip() for each in text.split(",") if each.strip())
    if len(set(names)) < len(names):
        raise ValueError("each name once")
    return names


def shard_name(text: str) -> str:
    """Of a shard."""
    if not _SHARD.fullmatch(text):
        raise ValueError("use 1 to 64 letters, digits, - and _")
    return text


def url(text: str) -> str:
    """An address of HTTP."""
    if not _URL.fullmatch(text):
        raise ValueError("use http:// or https://, a host, and a port")
    return text


def address(text: str) -> str:
    """Host and port."""
    if not _ADDRESS.fullmatch(text):
        raise ValueError("use host:port, and brackets around an IPv6 address")
    return text


def number_or_zero(low: int, high: int) -> Kind:
    """As `number`, or 0."""
    whole = number(low, high)

    def parse(text: str) -> object:
        try:
            return 0 if text == "0" else whole.parse(text)
        except ValueError as error:
            raise ValueError(f"{error}, or 0") from None

    return Kind(parse, f"0, or {whole.values}")


def choice(*choices: str, made: Callable[[str], object] = str) -> Kind:
    """One of some words."""

    def parse(text: str) -> object:
        if text not in choices:
            raise ValueError(f"use one of {', '.join(choices)}")
        return made(text)

    return Kind(parse, ", ".join(choices))


def addresses(text: str) -> tuple[str, ...]:
    """Addresses and networks, separated by commas."""
    found = [part.strip() for part in text.split(",") if part.strip()]
    for each in found:
        try:
            ipaddress.ip_network(each)
        except ValueError as error:
            raise ValueError(
                f"{error}; use addresses and networks separated by commas, for instance "
                "127.0.0.1,10.0.0.0/8"
            ) from None
    return tuple(found)


QUOTA: Final = number(0, QUOTA_MAX)
FILE: Final = Kind(Path, "a path of a file")


def pairs(text: str) -> object:
    """`left=right` pairs; the last `=` divides."""
    found = []
    for each in filter(None, map(str.strip, text.split(","))):
        left, separator, right = each.rpartition("=")
        if not separator or not left or not right:
            raise ValueError(f"{each!r} is no pair; write name=value, separated by commas")
        found.append((left, right))
    return tuple(found)


BOOLEAN: Final = Kind(boolean, "true, false")


def is_any_host(address: str) -> bool:
    """Whether a `host:port` listens on every address of the machine."""
    try:
        return ipaddress.ip_address(address.rpartition(":")[0].strip("[]")).is_unspecified
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
