"""Routes that a client knows, for tests of its rules."""

import json

from curlew_client.options import believed, node_of
from curlew_client.producing.routes import Routes


def known_routes(*queues: tuple[str, str, str | None]) -> Routes:
    """Of a topic `orders` with these queues: shard, permission, leader."""
    found = Routes(
        lambda url: believed(url, [node_of("http://z:1")]),
        lambda url: 0.0,
        is_on=True,
        is_one_given=True,
    )
    rows = [
        {"queue_id": number, "shard": shard, "perm": perm, "leader": leader}
        for number, (shard, perm, leader) in enumerate(queues)
    ]
    document = {"topic": "orders", "valid_ms": 30_000, "queues": rows}
    found.keep("orders", 200, None, json.dumps(document).encode(), 0)
    return found
