"""What `GET /metrics` shows, as one text."""

from app.api.telemetry.metrics import Sources, metric_parts


def render_metrics(sources: Sources) -> str:
    """All metrics of a node that leads its shard."""
    return "".join(metric_parts(sources))
