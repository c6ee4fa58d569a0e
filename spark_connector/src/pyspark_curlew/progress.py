"""How far a streaming query is behind, of its progress. Pure; imports nothing of Spark.

Spark asks a Python source for no metrics, so Kafka's (`maxOffsetsBehindLatest` and the others) are
made of what the progress has: the end of the batch and the end of the queues. Called by
applications, through the package.
"""

import json
from collections.abc import Mapping, Sequence

from pyspark_curlew.reading.offsets import FORMAT, StreamOffset, positions_of


def lag_of(progress: object) -> dict[str, float]:
    """Kafka's metrics over all queues of the Curlew sources of `query.lastProgress` (a mapping, or
    the object that a listener gets), by Kafka's names; `{}` before the first batch.

    In messages, and in bytes by the size of the next messages of each queue.
    """
    behind: list[int] = []
    waiting_bytes = 0
    sources = _of(progress, "sources")
    for source in sources if isinstance(sources, Sequence) else ():
        end, latest = (_document(_of(source, name)) for name in ("endOffset", "latestOffset"))
        if end is None or latest is None:
            continue
        reached = StreamOffset.from_json(end).positions
        averages = positions_of(latest.get("averageBytes", {}))
        for key, newest in StreamOffset.from_json(latest).positions.items():
            waits = max(0, newest - reached.get(key, newest))
            behind.append(waits)
            waiting_bytes += waits * averages.get(key, 0)
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": min(behind),
        "maxOffsetsBehindLatest": max(behind),
        "avgOffsetsBehindLatest": sum(behind) / len(behind),
        "estimatedTotalBytesBehindLatest": waiting_bytes,
    }


def _of(holder: object, name: str) -> object:
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)


def _document(given: object) -> Mapping[str, object] | None:
    """An offset of ours. Spark gives offsets as JSON, or as what that holds."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            return None
    return given if isinstance(given, Mapping) and given.get("fmt") == FORMAT else None
