"""Offsets committed to a consumer group, so that the service's own tools show a query's progress.

Never what decides where a query goes on: the checkpoint does. A commit that fails is logged and
passed over, for an exception here would end the query. Called by `stream`.
"""

import logging
from collections.abc import Mapping

from pyspark_curlew.client import CurlewClient
from pyspark_curlew.errors import ConnectorError
from pyspark_curlew.offsets import Positions

_LOG = logging.getLogger("pyspark_curlew")


def commit_positions(client: CurlewClient, group: str, positions: Positions) -> None:
    """Commit the next offsets of all queues, topic by topic."""
    topics: dict[str, dict[int, int]] = {}
    for key, offset in sorted(positions.items()):
        topics.setdefault(key.topic, {})[key.queue] = offset
    for topic, offsets in topics.items():
        _commit(client, group, topic, offsets)


def _commit(client: CurlewClient, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    try:
        client.commit(group, topic, offsets)
    except ConnectorError as error:
        _LOG.warning("offsets of topic %r are not committed: %s", topic, error)
