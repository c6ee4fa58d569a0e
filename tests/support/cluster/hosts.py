"""Hosts with a network of their own: namespaces of Linux that a bridge connects.

Between two hosts the way can be cut in one direction or in both. Needs root and `ip` (Debian:
iproute2). A host here has an address, `lo`, and nothing of this machine's network.
"""

import itertools
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final, TypeVar

from tests.support.cluster.namespace import NAMESPACES, enter_network

NOWHERE: Final = "02:00:00:00:00:fe"
"""A link address that nobody has: a frame to it is lost without a word, as on a broken way."""
OUTSIDE: Final = 1
"""The last number of the address of this machine, on the bridge."""

Result = TypeVar("Result")


def why_not() -> str:
    """Why hosts cannot be made here; empty when they can."""
    if shutil.which("ip") is None or shutil.which("nsenter") is None:
        return "the nemesis needs ip and nsenter (Debian: apt-get install iproute2 util-linux)"
    if os.geteuid() != 0:
        return "the nemesis makes network namespaces: run it as root"
    if subprocess.run(["unshare", "--net", "true"], check=False, capture_output=True).returncode:
        return "the nemesis makes network namespaces: give a container --privileged"
    return ""


class Host:
    """One namespace."""

    def __init__(self, name: str, namespace: str, address: str) -> None:
        self.name = name
        self.address = address
        self.namespace = namespace
        self._lost: Counter[str] = Counter()
        self._thread = ThreadPoolExecutor(1, initializer=partial(enter_network, namespace))
        """What runs there has its sockets in the namespace."""

    @property
    def command_prefix(self) -> Sequence[str]:
        """Before a command that is to run there; the process is the command's own."""
        return ("nsenter", f"--net={NAMESPACES / self.namespace}", "--")

    def call(self, what: Callable[[], Result]) -> Result:
        """Run it there, one call at a time, and wait for its result."""
        return self._thread.submit(what).result()

    def lose_what_goes_to(self, address: str) -> None:
        """From now on, until `reach` was said as often; what comes from there still arrives."""
        self._lost[address] += 1
        _ip("-n", self.namespace, "neigh", "replace", address, *_forever(NOWHERE))

    def reach(self, address: str) -> None:
        """Undo `lose_what_goes_to`."""
        self._lost[address] -= 1
        if not self._lost[address]:
            _ip("-n", self.namespace, "neigh", "del", address, "dev", "eth0")

    def close(self) -> None:
        self._thread.shutdown()


def _forever(link_address: str) -> Sequence[str]:
    return ("lladdr", link_address, "dev", "eth0", "nud", "permanent")


_NETWORKS: Final = itertools.count()


@contextmanager
def network(names: Sequence[str]) -> Iterator[tuple[str, dict[str, Host]]]:
    """A host for each name; and the address at which they reach this machine."""
    number_here = next(_NETWORKS)
    own = f"{os.getpid()}n{number_here}"  # the kernel lets go of the ones before in its own time
    net = f"10.213.{(os.getpid() + number_here) % 250}"
    bridge = f"cu{own}"
    with ExitStack() as stack:
        _ip("link", "add", bridge, "type", "bridge")
        stack.callback(_ip, "link", "del", bridge)
        _ip("addr", "add", f"{net}.{OUTSIDE}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        hosts: dict[str, Host] = {}
        for number, name in enumerate(names, OUTSIDE + 1):
            namespace = f"curlew-{own}-{name}"
            _ip("netns", "add", namespace)
            stack.callback(_ip, "netns", "del", namespace)
            there, here = ("-n", namespace), f"cu{own}{name}"
            _ip("link", "add", here, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            _ip("link", "set", here, "master", bridge, "up")
            _ip(*there, "link", "set", "lo", "up")
            _ip(*there, "addr", "add", f"{net}.{number}/24", "dev", "eth0")
            _ip(*there, "link", "set", "eth0", "up")
            hosts[name] = Host(name, namespace, f"{net}.{number}")
            stack.callback(hosts[name].close)
        yield f"{net}.{OUTSIDE}", hosts


def _ip(*arguments: str) -> None:
    subprocess.run(("ip", *arguments), check=True, capture_output=True)
