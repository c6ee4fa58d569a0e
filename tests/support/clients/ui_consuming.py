"""Pages of groups, of what waits, of nodes and of access, and what they are filled with."""

from typing import Any, Final

import httpx

CONSUMING_PAGES: Final[dict[str, str]] = {
    "groups": "groups",
    "group": "groups/billing",
    "group-members": "groups/shipping/members",
    "group-rebalances": "groups/shipping/rebalances",
    "group-clients": "groups/billing/clients",
    "group-receive": "groups/billing/receive",
    "group-offsets": "groups/billing/offsets?to=earliest",
    "group-settings": "groups/billing/settings",
    "dead-letter-groups": "dead-letters",
    "dead-letters": "dead-letters/billing",
    "dead-letters-plan": "dead-letters/billing/plan?offset=0&offset=1&act=redrive",
    "delayed-topics": "delayed",
    "delayed": "delayed/reminders",
    "delayed-cancel": "delayed/reminders/cancel?handle={recall}",
    "schedules": "schedules",
    "schedule": "schedules/nightly",
    "transactions": "transactions",
    "transaction": "transactions/{transaction}",
    "clients": "clients?client=worker-1",
    "producers": "clients?topic=orders",
    "nodes": "nodes",
    "settings": "nodes/settings?show=all",
    "about": "about",
    "principals": "principals",
    "policies": "policies",
    "audit": "audit",
}
"""Name of the picture → path below `/ui/`."""

EMPTY_CONSUMING_PAGES: Final[dict[str, str]] = {
    "groups": "groups",
    "dead-letters": "dead-letters",
    "delayed": "delayed",
    "schedules": "schedules",
    "transactions": "transactions",
    "clients": "clients",
    "principals": "principals",
    "policies": "policies",
}


def fill_consuming(client: httpx.Client, hostile: str) -> dict[str, str]:
    """Groups, members, dead letters, delayed messages, transactions; the ids of some."""
    orders = "/v1/topics/orders/groups/billing/messages"
    _ask(client, "PUT", "/v1/groups/billing", {"retry_policy": {"customized": ["1h"]}})
    named = {"max_messages": 6}
    got = _ask(client, "POST", f"{orders}:receive?client_id=worker-1", named)["messages"]
    handles = [each["receipt_handle"] for each in got]
    letters = [{"receipt_handle": each, "reason": hostile} for each in handles[:3]]
    nacks = [{"receipt_handle": handles[3]}]
    settles = {"dead_letters": letters, "nacks": nacks, "acks": handles[4:5]}
    _ask(client, "POST", f"{orders}:settle", settles)
    for member in ("worker-1", "worker-2"):
        reads = {"subscriptions": [{"topic": "orders"}, {"topic": "payments"}]}
        _ask(client, "PUT", f"/v1/groups/shipping/members/{member}", reads)
    for number in range(3):
        later = {"mq-keys": f"r-{number}", "mq-delay": f"{number + 1}h"}
        client.post("/v1/topics/reminders/messages", content=hostile.encode(), headers=later)
    waiting = _ask(client, "GET", "/v1/topics/reminders/scheduled")["messages"]
    nightly = {"cron": "0 3 * * *", "topic": "orders", "message": {"text": hostile}}
    _ask(client, "PUT", "/v1/schedules/nightly", nightly)
    prepare = {"mq-transaction": "prepare; group=payments-service"}
    begun = client.post("/v1/topics/payments/messages", content=b"paid", headers=prepare)
    return {
        "recall": waiting[0]["recall_handle"],
        "transaction": begun.json()["transaction_id"],
    }


def _ask(client: httpx.Client, method: str, path: str, body: Any = None) -> Any:
    answer = client.request(method, path, json=body)
    assert answer.is_success, answer.text
    return answer.json()
