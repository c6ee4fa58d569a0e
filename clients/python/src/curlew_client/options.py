"""The options of a client, checked once; and the addresses of nodes. Pure, but for the environment
and the name of this machine."""

import ipaddress
import os
import re
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from curlew_client.wire.durations import Duration, seconds_of

if TYPE_CHECKING:
    import ssl

    from curlew_client.hooks import Hook

VERSION: Final = "0.1.0"
URL_VARIABLE: Final = "CURLEW_URL"
KEY_VARIABLE: Final = "CURLEW_KEY"
DEFAULT_URL: Final = "http://127.0.0.1:8710"

KIB: Final = 1024
MIB: Final = 1024 * KIB


class Options(NamedTuple):
    """How a client works. Durations are seconds, texts such as `30s`, or timedeltas."""

    timeout: Duration = 10.0
    """Of a send, all its attempts together."""
    connect_timeout: Duration = 5.0
    """Of one attempt to connect."""
    retries: int = 2
    """Attempts after the first one of `send`, `send_batch` and settling."""
    async_retries: int = 2
    """The same of `send_async`."""
    retry_on_not_safe: bool = False
    """Repeat also what is stored and not on the medium, or not replicated, in time."""
    idempotent: bool = True
    """Number the messages, so that a repeated one is stored once."""
    compress_from: int | None = 4 * KIB
    """Bytes from which a single send packs its body; None: never."""
    linger: Duration = 0.005
    """How long `send_async` waits for more messages of a batch."""
    batch_messages: int = 1_000
    """Messages of a batch of `send_async`, at most."""
    batch_bytes: int = MIB
    """Bytes of it, about."""
    under_way_messages: int = 10_000
    """Messages of `send_async` that wait for their answers, at most."""
    under_way_bytes: int = 100 * MIB
    """Bytes of them."""
    connections: int = 32
    """Sends at once, each with its connection and its lane; others wait for their turn."""
    avoid_slow_nodes: bool = False
    """RocketMQ's latency fault table, where several nodes are known."""
    routes: bool = True
    """In a cluster of several shards, send straight to the nodes that lead them."""
    tls: "ssl.SSLContext | None" = None
    """For `https`; None: the certificates that this machine trusts."""
    namespace: str | None = None
    """Whose topics, groups and producers all names of this client are; None: those without one. A
    key that is bound to a namespace: name it here, too."""
    hooks: "Sequence[Hook]" = ()
    """What happens around each send and each handler of a worker: see `Hook`."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Options":
        """Options from keyword arguments: `TypeError` or `ValueError` with the right name."""
        for name in given:
            if name not in cls._fields:
                import difflib

                near = difflib.get_close_matches(name, cls._fields, 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise TypeError(f"there is no option {name!r}{hint}")
        options = cls(**given)
        for name, lowest in _LOWEST.items():
            _check_int(name, getattr(options, name), lowest)
        for name in ("retry_on_not_safe", "idempotent", "avoid_slow_nodes", "routes"):
            if not isinstance(getattr(options, name), bool):
                raise TypeError(f"{name} is True or False")
        for name in ("timeout", "connect_timeout", "linger"):
            seconds_of(name, getattr(options, name))
        check_hooks(options.hooks)
        check_namespace(options.namespace)
        if options.tls is not None:
            import ssl

            if not isinstance(options.tls, ssl.SSLContext):
                raise TypeError(f"tls is an ssl.SSLContext, not {type(options.tls).__name__}")
        return options


_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_-]{1,63}")
OF_THE_CLUSTER: Final = (
    *("/v1/audit", "/v1/cluster", "/v1/config", "/v1/error-codes", "/v1/limits", "/v1/namespaces"),
    *("/v1/nodes", "/v1/policies", "/v1/principals", "/v1/roles", "/v1/shards"),
)
"""How the paths of operations begin that are of no namespace."""


def check_namespace(namespace: object) -> None:
    """`TypeError` or `ValueError` unless it is one, or None."""
    if namespace is not None and not isinstance(namespace, str):
        raise TypeError(f"namespace is a str, not {type(namespace).__name__}")
    if namespace is not None and not _NAMESPACE.fullmatch(namespace):
        raise ValueError(f"namespace is {namespace!r}; it has 1 to 63 letters, digits, - or _")


def check_hooks(hooks: object) -> None:
    """`TypeError` unless it is a list of `Hook`."""
    from curlew_client.hooks import Hook

    if not isinstance(hooks, Sequence) or not all(isinstance(each, Hook) for each in hooks):
        raise TypeError("hooks is a list of curlew_client.Hook")


_LOWEST: Final = {
    "retries": 0,
    "async_retries": 0,
    "compress_from": 0,
    "batch_messages": 1,
    "batch_bytes": 1,
    "under_way_messages": 1,
    "under_way_bytes": 1,
    "connections": 1,
}


def _check_int(name: str, value: object, lowest: int) -> None:
    if value is None and name == "compress_from":
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is an int, not {type(value).__name__}")
    if value < lowest:
        raise ValueError(f"{name} is {value}; it must be {lowest} or more")


class Node(NamedTuple):
    """The address of a node. `prefix` is the path behind which a proxy has it."""

    url: str
    host: str
    port: int
    is_tls: bool
    prefix: str
    is_told: bool = False
    """By another node, and not given: it may be out of reach from here."""

    @property
    def authority(self) -> str:
        """The value of `Host`."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == (443 if self.is_tls else 80) else f"{name}:{self.port}"


def nodes_of(url: str | Sequence[str] | None) -> list[Node]:
    """The nodes that are named; without any `CURLEW_URL`, else the one on this machine."""
    if url is None:
        url = os.environ.get(URL_VARIABLE) or DEFAULT_URL
    texts: Iterable[Any] = url.split(",") if isinstance(url, str) else url
    if isinstance(texts, bytes) or not isinstance(texts, Iterable):
        raise TypeError(f"url is a str or several of them, not {type(url).__name__}")
    nodes = list({node.url: node for node in map(node_of, texts)}.values())
    if not nodes:
        raise ValueError("url names no node")
    return nodes


def node_of(url: object) -> Node:
    """One node. A `ValueError` says what is wrong with the address."""
    if not isinstance(url, str):
        raise TypeError(f"url is a str such as {DEFAULT_URL!r}, not {type(url).__name__}")
    url = url.strip()
    if "://" not in url:
        raise ValueError(f"the address {url!r} has no scheme; write 'http://{url}' or 'https://…'")
    url = url.rstrip("/") if urlsplit(url).netloc else url
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"the address {url!r} cannot be read: {error}") from None
    if parts.scheme not in {"http", "https"}:
        raise ValueError(f"the address {url!r} begins with neither http:// nor https://")
    if not parts.hostname:
        raise ValueError(f"the address {url!r} has no host")
    if parts.username or parts.password:
        raise ValueError("the address has a user or a password in it; give the key as key=…")
    if parts.query or parts.fragment:
        raise ValueError(f"the address {url!r} has a query or a fragment; leave it out")
    is_tls = parts.scheme == "https"
    return Node(url, parts.hostname, port or (443 if is_tls else 80), is_tls, parts.path)


def believed(url: object, given: Sequence[Node]) -> Node | None:
    """A node whose address another node told; None when the key must not go there, or cannot.

    A client that was given any `https` goes nowhere without it. A loopback address of a node
    elsewhere would be whatever runs on this machine, and a link-local one whatever is next to it.
    """
    try:
        node = node_of(url)
    except (TypeError, ValueError):
        return None
    is_downgrade = not node.is_tls and any(each.is_tls for each in given)
    reach = _reach(node.host)
    is_astray = reach is not None and all(_reach(each.host) != reach for each in given)
    return None if is_downgrade or is_astray else node._replace(is_told=True)


def _reach(host: str) -> str | None:
    """How far an address means the same; None: everywhere, as far as can be seen."""
    host = host.removesuffix(".")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:
            address = ipaddress.IPv4Address(socket.inet_aton(host))  # such as 127.1
        except (OSError, ValueError):
            is_here = host == "localhost" or host.endswith(".localhost")
            return "loopback" if is_here else None
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    if address.is_loopback:
        return "loopback"
    if address.is_link_local:
        return "link-local"
    return "unspecified" if address.is_unspecified else None


def key_of(key: str | None) -> str | None:
    """The API key that was given, else `CURLEW_KEY`."""
    key = os.environ.get(KEY_VARIABLE) if key is None else key
    if key is None or key == "":
        return None
    if not isinstance(key, str):
        raise TypeError(f"key is a str, not {type(key).__name__}")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ValueError("key has characters that no API key has; is there a line feed in it?")
    return key


def lines_of(node: Node, key: str | None, namespace: str | None) -> str:
    """Header lines that every request to the node has."""
    lines = f"host: {node.authority}\r\nuser-agent: curlew-client-python/{VERSION}\r\n"
    if key:
        lines += f"authorization: Bearer {key}\r\n"
    return lines if namespace is None else f"{lines}mq-namespace: {namespace}\r\n"


def new_client_id(now_ns: Callable[[], int]) -> str:
    """RocketMQ's form: machine, process, and what no other client of it has."""
    machine = "".join(c if c.isascii() and c.isalnum() else "-" for c in socket.gethostname())
    return f"{machine[:60] or 'client'}@{os.getpid()}-{now_ns():x}"
