"""The page of settings, `docs/running/settings.md`: the name, default, range and meaning of each.

`curlew settings` prints it from `app.settings` and `app.domain.limits`; `make check` compares.
Pure.
"""

from collections.abc import Iterator
from dataclasses import fields
from typing import Final

from app.config import (
    ENVIRONMENT_PREFIX,
    LIMIT_MAX,
    LIMIT_PREFIX,
    LIMITS_TABLE,
    SETTINGS,
    Config,
)
from app.domain.limits import FIXED_LIMITS, KIB, MIB, ORDERED, Limits
from app.running_config import CHANGEABLE

CHANGEABLE_MARK: Final = "↻"

_HEAD: Final = f"""<!-- `make settings` makes it from app/settings.py and app/domain/limits.py -->
# Settings

A setting is given in one of three places. A later one wins:

1. the environment: `{ENVIRONMENT_PREFIX}PORT=8711`,
2. a TOML file named with `--config`: `port = 8711`,
3. a flag of `curlew dev`, `curlew serve` and `curlew migrate`: `--port 8711`.

The node names every setting that it does not know, and every value that it cannot use, and does not
start. Settings are read at the start; those with {CHANGEABLE_MARK} can be
[changed while nodes run](index.md#change-settings-while-nodes-run), where none of the three places
names them.

| Setting | Environment | Default | Values | Meaning |
|---|---|---|---|---|
"""

_LIMITS_HEAD: Final = f"""
## Limits

A limit is set as `{ENVIRONMENT_PREFIX}{LIMIT_PREFIX.upper()}TOPICS_MAX=20000`, or in the table
`[{LIMITS_TABLE}]` of the file as `topics_max = 20000`. Each takes a whole number from 1 to
{LIMIT_MAX}. `GET /v1/limits` shows those of a node.

| Limit | Default | Meaning |
|---|---|---|
"""

_ORDER_HEAD: Final = """
### Limits that depend on each other

A node does not start unless all of these hold:

"""

_FIXED_HEAD: Final = """
### Limits that nobody can set

`GET /v1/limits` shows them, since a client may meet them.

| Limit | Value | Meaning |
|---|---|---|
"""

_LIMITS: Final = {
    "body_bytes_max": "Body of a message.",
    "batch_messages_max": "Messages in a batch.",
    "batch_bytes_max": "Body of a batch request, and of the request that sends a batch frame.",
    "properties_bytes_max": "Properties that a client gives one message, encoded.",
    "properties_count_max": "Properties that a client gives one message.",
    "keys_count_max": "Keys of a message.",
    "tag_bytes_max": "Tag of a message, in UTF-8.",
    "queues_per_topic_max": "Queues of a topic.",
    "queues_max": "Queues of all topics together.",
    "topics_max": "Topics.",
    "groups_max": "Consumer groups.",
    "deleted_names_max": "Names of deleted topics and groups that are remembered.",
    "deleted_queues_max": "Queues of deleted topics that are remembered.",
    "pull_messages_max": "Messages in the answer to a pull.",
    "pull_bytes_max": "Stored bytes in the answer to a pull. One message is always given.",
    "in_place_messages_max": "Messages of a frame that the node sends unread (`checksum=crc32`).",
    "in_place_bytes_max": "Bytes of such a frame.",
    "pull_scan_units_max": "Messages that one request passes by tag.",
    "filter_looks_max": "Times that one request reads up to 256 messages or 1 MiB under a filter.",
    "receive_messages_max": "Messages in the answer to a receive.",
    "receive_bytes_max": "Stored bytes in the answer to a receive. One message is always given.",
    "wait_seconds_max": "Longest long poll.",
    "waiters_max": "Pulls and receives that wait at once.",
    "requests_waiting_max": "Requests that wait for a reply at once.",
    "invisible_ms_min": "Shortest invisible time of a lease.",
    "invisible_ms_max": "Longest invisible time of a lease.",
    "header_block_bytes_max": "Headers of a request.",
    "unpacking_ratio_max": "How many times its size a packed body may unpack to.",
    "bodies_in_flight_bytes_max": "Bodies of requests that are being received, of all clients.",
    "answers_in_flight_bytes_max": "Answers that are being sent, of all clients.",
    "header_count_max": "Header lines of a request.",
    "request_target_bytes_max": "Path and query of a request.",
    "connections_max": "Connections.",
    "connections_per_address_max": "Connections from one address.",
    "refused_connections_max": "Connections beyond these that are kept open to be told why.",
    "file_answers_max": "Answers that are sent straight from the files of the log at once.",
    "store_files_max": "Files that the store keeps open.",
    "first_byte_ms_max": "Time to the first byte on a new connection.",
    "request_head_ms_max": "Time for the request line and the headers.",
    "request_body_ms_max": "Time for a body, beside what its size takes at the least rate.",
    "request_body_bytes_per_second_min": "This least rate.",
    "idle_connection_ms_max": "Time between two requests on a connection.",
    "unread_answer_ms_max": "Time in which a client reads nothing of its answer.",
    "linger_ms_max": "Time in which a refused client is still read from, before the close.",
    "page_size_max": "Entries of a page of a list.",
    "stored_ratio_max": "Size of a body to that of its packed form, up to which it is kept packed.",
    "topics_per_look_max": "Topics of one `GET /v1/topics:positions` or `/v1/route`.",
    "producers_max": "Producers that number their messages, and their plans and sealed epochs.",
    "producer_sequences_max": "Sequences of these producers, one for each queue.",
    "producer_idle_ms_min": "How long a producer is idle before it is forgotten for want of room.",
    "producer_window_ms": "How long a producer is remembered after its last message.",
    "producer_results_max": "Results of each sequence that are given again.",
    "idempotency_keys_max": "Values of `Idempotency-Key` that are remembered.",
    "idempotency_window_ms": "How long a value is remembered.",
    "idempotency_key_chars_max": "Characters of a value.",
    "pending_append_bytes_max": "Appends that wait for the log's writer. More are refused (503).",
    "replication_wait_ms": "How long a send waits for other replicas, where the shard has any.",
    "streams_max": "Streams that are open at once.",
    "streams_per_principal_max": "Of them, streams of one principal.",
    "stream_credit_max": "Unsettled messages of a group's stream.",
    "stream_chunk_bytes_max": "Bytes that a stream writes at once, and reads ahead.",
    "stream_heartbeat_ms": "Time without messages after which a stream writes a heartbeat.",
    "stream_ms_max": "Longest stream.",
    "stream_unread_ms_max": "Time in which the client of a stream reads nothing.",
    "group_in_flight_max": "Greatest `max_in_flight` of a group.",
    "ordered_lookahead_max": "Messages of a queue that an ordered group looks at for free keys.",
    "retention_ms_min": "Shortest retention of a topic.",
    "retention_ms_max": "Longest retention of a topic.",
    "attempts_max": "Greatest `max_attempts` of a group.",
    "delay_ms_max": "Longest delay of a message and of a retry.",
    "scheduled_scan_max": "Waiting messages that one page of `scheduled` looks at.",
    "schedules_max": "Schedules.",
    "retry_delays_max": "Steps of a group's `retry_policy`.",
    "transaction_check_after_ms": "Time from a prepared message to its first check-back: default.",
    "transaction_check_after_ms_min": "Shortest `check-after`.",
    "transaction_check_after_ms_max": "Longest `check-after`.",
    "transaction_check_interval_ms": "Time between two check-backs.",
    "transaction_checks_max": "Check-backs before the transaction is rolled back.",
    "transactions_pending_max": "Transactions that are not decided.",
    "transactions_remembered_max": "Decided transactions that are remembered.",
    "member_lease_ms": "Silence after which a member is taken out, or a kind of consumption ends.",
    "members_per_group_max": "Members of a group.",
    "members_max": "Members of all groups together.",
    "subscriptions_per_group_max": "Topics that a group has begun in.",
    "subscribed_queues_max": "Queues that all groups have begun in.",
    "subscriptions_per_member_max": "Topics that one member reads.",
    "queue_lock_ms": "How long a queue lock holds.",
    "rebalance_history_max": "Rebalances of a group that are kept.",
    "offset_snapshots_per_group_max": "Snapshots of offsets of a group.",
    "dead_letters_scanned_max": "Dead letters that one request looks at.",
    "dead_letters_selected_max": "Dead letters that one request may name.",
    "operations_running_max": "Operations (redrives) that run at once.",
    "operations_per_principal_max": "Of them, operations of one principal.",
    "operations_kept_max": "Ended operations that are remembered.",
    "trace_notes_pending_max": "Notes of trails that wait to be written. More are not kept.",
    "statistics_rows_max": "Topics, and as many groups in topics, that have figures of their own.",
    "clients_max": "Consumers, and as many producers, that a node lists in all.",
    "trace_records_read_max": "Records of trails that one `trace` reads.",
    "trace_notes_searched_max": "Notes of trails that one search looks at.",
    "trace_results_max": "Events that one page of a search has.",
}

_FIXED: Final = {
    "hook_budget_ms_max": "Longest time in milliseconds that a hook may ask for.",
    "hook_threads_max": "Calls of a hook at a time, of those that do not return, too.",
    "hook_events_pending_max": "What a hook is to be told of and has not been; more is not told.",
    "hook_handles_pending_max": "Receipt handles in that; when it has as many, no more is told.",
    "hook_reason_chars_max": "Characters of why a hook refuses a send; more are cut.",
    "client_id_chars_max": "Characters of a client id.",
    "name_chars_max": "Characters of the name of a topic or a group.",
    "namespace_chars_max": "Characters of the name of a namespace; with `%` and a name in it, as "
    "many as a name.",
    "namespaces_max": "Namespaces of the cluster.",
    "relay_connections_max": "Requests that one node carries to another one at a time.",
    "relay_connections_per_principal_max": "Of those, in the name of one principal.",
    "shards_max": "Shards of the cluster: stores that its nodes have.",
    "events_kept_max": "Events of nodes and shards. The oldest are forgotten.",
    "nodes_kept_max": "Nodes that ever registered. Those not seen for longest are forgotten.",
    "max_poll_interval_ms_min": "The shortest time within which a member promises to poll again.",
    "max_poll_interval_ms_max": "The longest one.",
    "virtual_nodes_max": "Places of a member on the ring of the strategy consistent_hash.",
    "clients_listed_max": "Clients of a group, and producers of a topic, that are listed.",
    "clients_of_a_principal_max": "Client ids that one principal keeps from others in groups; of "
    "more, those that were used last.",
    "client_shown_ms": "How long a client is listed after its last request.",
    "metric_labels_max": "Topics, and groups in topics, that `/metrics` names.",
    "filter_chars_max": "Characters of a filter.",
    "filter_depth_max": "Nesting of a SQL filter.",
    "properties_encoded_bytes_max": "All properties of a record, the node's own with them.",
    "raw_property_headers_max": "Properties of a raw message in headers of their own.",
    "raw_property_headers_bytes_max": "The same in bytes. More come in one header.",
    "raw_headers_bytes_max": "All headers of a raw message. Beyond, it is to be had as JSON only.",
    "message_properties_bytes_max": "All properties of a sent message as they are stored.",
    "key_bytes_max": "Bytes of a key.",
    "sharding_key_bytes_max": "Bytes of a sharding key.",
    "content_type_bytes_max": "Bytes of a content type.",
    "topic_rate_max": "Messages a second that the `max_rate` of a topic may say.",
    "message_id_bytes_max": "Bytes of an id that a producer gives (`unique_id`).",
    "reason_bytes_max": "Bytes of the reason of a nack or a dead letter. A longer one is cut.",
    "entry_id_chars_max": "Characters of the caller's id of an entry of a batch.",
    "attempt_id_chars_max": "Characters of an `attempt_id`.",
}


def settings_page() -> str:
    """The page, as Markdown. Raises `KeyError` for a limit that has no meaning here."""
    return _HEAD + "".join(
        [
            *_settings(),
            _LIMITS_HEAD,
            *_limits(),
            _ORDER_HEAD,
            *_orders(),
            _FIXED_HEAD,
            *(
                _row(f"`{name}`", amount(name, value), _FIXED[name])
                for name, value in FIXED_LIMITS.items()
            ),
        ]
    )


def _settings() -> Iterator[str]:
    defaults = Config()
    for name, setting in SETTINGS.items():
        value = getattr(defaults, name)
        yield _row(
            f"`{name}`",
            f"`{ENVIRONMENT_PREFIX}{name.upper()}`",
            _default(value),
            setting.kind.values,
            _marked(name, setting.meaning),
        )


def _marked(name: str, meaning: str) -> str:
    return f"{meaning} {CHANGEABLE_MARK}" if name in CHANGEABLE else meaning


def _default(value: object) -> str:
    if value is None or value == "" or value == ():
        return "unset"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _limits() -> Iterator[str]:
    for item in fields(Limits):
        assert isinstance(item.default, int)
        meaning = _marked(LIMIT_PREFIX + item.name, _LIMITS[item.name])
        yield _row(f"`{item.name}`", amount(item.name, item.default), meaning)


def _orders() -> Iterator[str]:
    for low, factor, high in ORDERED:
        times = f"{factor} times " if factor > 1 else ""
        yield f"- {times}`{low}` ≤ `{high}`\n"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def amount(name: str, value: int) -> str:
    """A limit as people read it: the number, and the same in its largest unit."""
    number = f"{value}"
    units: tuple[tuple[int, str], ...]
    if "_ms" in name:
        units = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
    elif "_bytes" in name:
        units = ((MIB, "MiB"), (KIB, "KiB"))
    else:
        return number
    for size, unit in units:
        if value >= size and value % size == 0:
            return f"{number} ({value // size} {unit})"
    return number
