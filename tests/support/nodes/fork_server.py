"""A process that has imported the node and is forked for each one, since importing takes a second.

`python -m tests.support.nodes.fork_server SOCKET` reads from that descriptor. Each request is one
datagram, the JSON of a `Start` with three descriptors: the new node's stdout, its stderr, and the
pipe that is answered with the id of its process. The node becomes the child of the nearest ancestor
that adopts orphans: of the tests, which see it end. A server whose socket is closed ends.

A forked node runs the same `app.cli.main` as the command; the command itself, from its first line
on, is run by `tests/integration/test_commands.py` and `tests/integration/test_node_life.py`.
"""

import gc
import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

REQUEST_BYTES_MAX: Final = 128 * 1024
"""Arguments and environment of a node."""
RETENTION_SECONDS: Final = "CURLEW_TESTS_RETENTION_SECONDS"
"""In the environment of a forked node: how often it looks at its disk, instead of each 10 s."""
NETWORK: Final = "CURLEW_TESTS_NETWORK"
"""In the environment of a forked node: the network namespace that it enters."""


class Start(NamedTuple):
    """What a node is started with."""

    arguments: Sequence[str]
    """Of `curlew`."""
    environment: Mapping[str, str]
    """The whole of it."""


def next_node(server: socket.socket) -> Start | None:
    """Fork a process for each request. Returns in the new process, with what it is to do; None in
    the server, when nobody can ask for more."""
    while True:
        request, descriptors, _, _ = socket.recv_fds(server, REQUEST_BYTES_MAX, 3)
        if not request:
            return None
        between = os.fork()
        if not between:
            pid = os.fork()
            if pid:  # the node loses its parent, and is adopted
                os.write(descriptors[2], str(pid).encode())
                os._exit(0)
            for place, descriptor in enumerate(descriptors[:2], 1):
                os.dup2(descriptor, place)
            os.closerange(3, max(*descriptors, server.fileno()) + 1)
            server.detach()
            return Start(*json.loads(request))
        os.waitpid(between, 0)
        for descriptor in descriptors:
            os.close(descriptor)


def main() -> int:
    """Serve; in a forked process run the node instead."""
    from app import cli
    from app.node_parts import served_term
    from tests.support.cluster.namespace import enter_network
    from tests.support.cluster.node_clock import CLOCK, go_by

    _prepare()
    start = next_node(socket.socket(fileno=int(sys.argv[1])))
    if start is None:
        return 0
    environment = dict(start.environment)
    if (seconds := environment.pop(RETENTION_SECONDS, None)) is not None:
        served_term.RETENTION_SECONDS = float(seconds)  # type: ignore[misc]
    if (network := environment.pop(NETWORK, None)) is not None:
        enter_network(network)
    if (clock := environment.pop(CLOCK, None)) is not None:
        go_by(clock)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    return cli.main(start.arguments)


def _prepare() -> None:
    """Do once what each node would do: import, compile templates, work out routes, make tables."""
    from fastapi.routing import iter_route_contexts

    from app.api.control.control_plane import operation_routes
    from app.cluster import migrate
    from app.commands import node_commands, running  # noqa: F401  # what takes long to import
    from app.web.rendering.templates import packaged_templates
    from tests.support.metadata.migrated_file import copying

    packaged_templates()
    list(iter_route_contexts(operation_routes()))
    vars(running)["migrate"] = copying(migrate)
    gc.collect()
    gc.freeze()  # a node's collector would visit all of it, and so copy its pages


if __name__ == "__main__":
    sys.exit(main())
