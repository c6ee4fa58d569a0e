"""File descriptors: as many as this process may have, and who gets how many of them.

A node that accepts more connections than there are descriptors has none left for its log. So the
store has a share of its own, and where the limit is low connections get what is left.
"""

import logging
import resource
from dataclasses import replace
from typing import Final

from app.domain.limits import Limits

_LOG: Final = logging.getLogger(__name__)

STORE_FILES_MIN: Final = 128
"""With fewer, store and metadata cannot work: files of queues, segments, index and database."""

CONNECTIONS_MIN: Final = 16
"""Fewer are of no use to anyone."""


class TooFewDescriptors(Exception):
    """A node cannot work with so few open files; the text says what to do."""


def allow_open_files(limits: Limits) -> int:
    """Raise this process's limit as far as `limits` need it and it may be; what it is then."""
    wanted = _wanted(limits)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= allowed:
        return wanted if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return allowed


def fitted(limits: Limits, allowed: int) -> Limits:
    """`limits` with no more connections and files than `allowed` descriptors are enough for.

    Raises `TooFewDescriptors`.
    """
    if allowed >= _wanted(limits):
        return limits
    store = min(limits.store_files_max, max(STORE_FILES_MIN, allowed // 4))
    left = allowed - store
    extra = left // 8
    fitting = replace(
        limits,
        store_files_max=store,
        file_answers_max=min(limits.file_answers_max, extra),
        refused_connections_max=min(limits.refused_connections_max, extra),
        connections_max=min(limits.connections_max, left - 2 * extra),
    )
    if fitting.connections_max < min(CONNECTIONS_MIN, limits.connections_max):
        raise TooFewDescriptors(
            f"only {allowed} open files are allowed, and a node needs {STORE_FILES_MIN} beside its "
            "connections; raise the limit (`ulimit -n`, LimitNOFILE of systemd)"
        )
    if fitting.connections_max == limits.connections_max:
        return fitting
    _LOG.warning(
        "only %d open files are allowed, so connections_max is %d instead of %d (%d are kept for "
        "the store); raise the limit (`ulimit -n`, LimitNOFILE of systemd) to %d",
        allowed,
        fitting.connections_max,
        limits.connections_max,
        store,
        _wanted(limits),
    )
    return fitting


def _wanted(limits: Limits) -> int:
    """An answer from files has two descriptors; who is refused has one while it reads why."""
    connections = limits.connections_max + limits.refused_connections_max
    return connections + limits.file_answers_max + limits.store_files_max
