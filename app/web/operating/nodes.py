"""The nodes that share the metadata and their shards, and this node: its health, disk, settings."""

import re
from typing import Final

from app.web.operating.cluster_history import happened
from app.web.serving.api import Json, Refused
from app.web.serving.families import LIVE_S, Family
from app.web.serving.page import Outcome, Page

family: Final = Family("nodes", label="Nodes", path="nodes", key="n", section="Operation")

_SILENT_MS: Final = 60_000
"""A node writes a sign of life every 10 seconds."""
_EVENTS_SHOWN: Final = 20
_SAMPLE: Final = re.compile(r"(\w+)(?:\{[^}]*\})? (\S+)")
_SHOWN: Final = frozenset(
    {
        *("curlew_log_bytes", "curlew_log_unsynced_bytes", "curlew_http_connections"),
        *("curlew_streams", "curlew_waiting_requests", "curlew_storage_pending_bytes"),
        *("curlew_put_latency_sum", "curlew_put_latency_count", "rocketmq_timing_messages"),
        *("curlew_http_refused_total", "curlew_producers", "curlew_idempotency_keys"),
        *("curlew_disk_bytes", "curlew_disk_free_bytes", "curlew_log_segments"),
        *("curlew_log_sync_seconds_sum", "curlew_log_sync_seconds_count"),
        *("curlew_store_damage_total", "rocketmq_half_messages", "rocketmq_topic_number"),
    }
)


@family.page("/nodes", live_s=LIVE_S)
async def nodes(page: Page) -> Outcome:
    """All nodes and shards, what happened, and what the node that answers says of itself."""
    found = await page.part("cluster") or {"nodes": [], "shards": []}
    events = await page.part("cluster", "events", page_size=_EVENTS_SHOWN) or {"events": []}
    return page.show(
        "operating/nodes.html",
        nodes=found["nodes"],
        shards=found["shards"],
        events=happened(events["events"], page.gettext),
        replicated=[each for each in found["shards"] if each.get("replicas")],
        may_change=await page.may("ADMIN"),
        silent_ms=_SILENT_MS,
        health=await _health(page),
        figures=await _figures(page),
    )


async def _health(page: Page) -> Json:
    """What `/readyz` says, also when it is 503."""
    try:
        health: Json = (await page.api.ask("GET", "/readyz")).json()
    except Refused as error:
        return error.problem
    return health


async def _figures(page: Page) -> dict[str, float]:
    """Sums of the node's metrics by name; one that follows has none of messages and topics."""
    sums: dict[str, float] = {}
    try:
        text = (await page.api.ask("GET", "/metrics")).body.decode()
    except Refused:
        return {}
    for line in text.splitlines():
        found = _SAMPLE.fullmatch(line)
        if found and found[1] in _SHOWN:
            sums[found[1]] = sums.get(found[1], 0.0) + float(found[2])
    return sums


@family.page("/nodes/settings")
async def settings(page: Page) -> Outcome:
    """What the node runs with, and where each value comes from."""
    found = await page.get("config")
    chosen = page.query("show") or "changed"
    rows = [
        each
        for each in found["settings"]
        if chosen == "all" or each["source"] != "default" or each["value"] != each["default"]
    ]
    return page.show(
        "operating/settings.html",
        rows=rows,
        total=len(found["settings"]),
        chosen=chosen,
        limits=await page.get("limits"),
        crumbs=[(page.gettext("Nodes"), "nodes")],
    )
