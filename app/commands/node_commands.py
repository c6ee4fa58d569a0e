"""`curlew dev` and `curlew serve`: a node, run until it is told to stop."""

import argparse
import contextlib
import gc
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import uvloop

from app.cluster import shown_database
from app.config import Config
from app.main import NodeServer, bind
from app.node import Node
from app.node_parts.from_config import log_cache_note
from app.runtime.allocator import keep_freed_memory
from app.runtime.descriptors import allow_open_files, fitted
from app.runtime.version import program_version

_LOG: Final = logging.getLogger(__name__)

HUNG_SECONDS: Final = 20.0
"""How long the last sync and checkpoint of a stop may take. Slow disks have needed a few."""

HUNG_STATUS: Final = 1

COLLECTOR_THRESHOLDS: Final = (20_000, 10, 10)
"""Python's own are 700, 10, 10."""


def run(options: argparse.Namespace, config: Config) -> None:
    """Run the node that a command asks for."""
    uvloop.run(_serve(config, _banner if options.command == "dev" else _line))


def _set_level(config: Config) -> None:
    """The level may change while the node runs."""
    logging.getLogger().setLevel(config.log_level.upper())


async def _serve(config: Config, announce: Callable[[Node, int], str]) -> None:
    """Run a node until it is told to stop; `announce` makes what is printed once it is up."""
    listener: socket.socket | None = None
    if not config.port:  # clients are told of the one that it gets
        listener = bind(config)
        config = replace(config, port=listener.getsockname()[1])
    try:
        limits = fitted(config.limits, allow_open_files(config.limits))
        node = await Node.open(config, limits=limits)
    except BaseException:
        if listener is not None:
            listener.close()
        raise
    node.running.listen(_set_level)
    try:
        listener = listener or bind(config)
        server = NodeServer(node)
        _quiet_collector()
        keep_freed_memory()
        sys.stdout.write(announce(node, listener.getsockname()[1]))
        sys.stdout.flush()
        note = log_cache_note(config)
        if note is not None:
            _LOG.info("%s", note)
        await server.serve(sockets=[listener])
    finally:
        with _ended_if_it_hangs():
            await node.close()


@contextlib.contextmanager
def _ended_if_it_hangs() -> Iterator[None]:
    """A sync that never returns holds the thread that waits for it, and this thread with it: end
    the process as by kill -9 then. What was acknowledged is on the medium or on other replicas."""

    def give_up() -> None:
        _LOG.error("the disk does not answer: the node ends without its last sync and checkpoint")
        logging.shutdown()
        os._exit(HUNG_STATUS)

    timer = threading.Timer(HUNG_SECONDS, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _quiet_collector() -> None:
    """Keep the cyclic collector away from what lives as long as the node.

    Requests leave next to no cycles behind; walking all modules again and again cost a tenth of
    the processor time of a send (20.9 → 18.5 µs in process, medians of four).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)


def _url(config: Config, port: int) -> str:
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"{'https' if config.has_tls else 'http'}://{host}:{port}"


def _line(node: Node, port: int) -> str:
    """Of a production node: one line, that a log of a service manager keeps."""
    config = node.config
    store = config.data_dir.absolute() / "store"
    return (
        f"curlew {program_version()} is up at {_url(config, port)}, "
        f"store {node.node_id} in {store}, metadata in {shown_database(config.database)}, "
        f"{_who_may(node)}\n"
    )


def _who_may(node: Node) -> str:
    """Proxies, tunnels and other users of the machine look like any local client: a node cannot
    tell, so it says that it does not ask."""
    if node.metadata.principals.keyring.is_closed:
        return "asks for API keys"
    return "open: who reaches it, also through a proxy or a tunnel, may do everything"


def _banner(node: Node, port: int) -> str:
    config = node.config
    url = _url(config, port)
    receive = f"{url}/v1/topics/orders/groups/billing/messages:receive"
    key = " -H 'Authorization: Bearer <key>'" if node.metadata.principals.keyring.is_closed else ""
    return f"""
Curlew is running. Ctrl-C stops it; nothing that was acknowledged is lost.

  data      {config.data_dir.absolute()}
  page      {url}/ui
  API       {url}/openapi.json
  access    {_who_may(node)}

Try it:

  curl -i {url}/v1/topics/orders/messages{key} -H 'MQ-Tag: created' -d '{{"id":17}}'
  curl {url}/v1/topics/orders/stats{key}
  curl -X POST '{receive}?wait=5'{key}

"""
