"""Names that the clients of RocketMQ, SQS and Kafka have for what is called otherwise here: for the
sentence that says so. Pure."""

import difflib
from collections.abc import Collection, Mapping
from typing import Final

CALLS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("produce", "publish", "put", "sendmessage", "sendsync"), "send"),
    **dict.fromkeys(("sendmessagebatch", "sendmessages", "sendbatchmessage"), "send_batch"),
    **dict.fromkeys(("receivemessage", "receivemessages", "consume"), "receive"),
    **dict.fromkeys(("assign", "commit", "poll", "seek", "subscribe"), "pull_consumer"),
    **dict.fromkeys(("ack", "acknowledge", "deletemessage"), "ack of the message"),
    **dict.fromkeys(("changemessagevisibility", "nack"), "nack of the message"),
    **dict.fromkeys(
        ("createqueue", "createtopic", "createtopics", "listqueues", "listtopics"), "admin"
    ),
    **dict.fromkeys(("begintransaction", "sendmessageintransaction"), "transaction"),
    **dict.fromkeys(("flush", "shutdown", "stop"), "close"),
}
OPTIONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("delayseconds", "delaytimelevel", "delaytime", "delaytimesec"), "delay"),
    **dict.fromkeys(("key", "messagekey"), "keys (to find it by) or sharding_key (to keep order)"),
    **dict.fromkeys(("messagegroup", "messagegroupid", "partitionkey"), "sharding_key"),
    **dict.fromkeys(("partition", "queue"), "queue_id"),
    **dict.fromkeys(("headers", "messageattributes", "attributes"), "properties"),
    **dict.fromkeys(("deduplicationid", "messagededuplicationid"), "unique_id"),
    **dict.fromkeys(("delivertimestamp", "deliverat", "startdelivertime"), "deliver_at_ms"),
}


def hint(name: str, elsewhere: Mapping[str, str], known: Collection[str]) -> str:
    """What to say behind that there is no such name; empty when nothing is like it."""
    if meant := elsewhere.get(name.replace("_", "").lower()):
        return f"; here it is {meant}"
    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {near[0]!r}?" if near else ""
