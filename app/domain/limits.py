"""Every bound of the system, by name. Served at `GET /v1/limits`.

The defaults are those of the HTTP contract; where a neighbour has a well-known number it is named,
so that a reader can judge ours: SQS 10 per batch and 1 MiB, Pub/Sub 1,000 and 10 MB, RocketMQ 4 MiB
bodies and 32 KiB properties.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

KIB = 1024
MIB = 1024 * KIB

CLIENT_ID_CHARS_MAX = 255
"""Longest client id. RocketMQ's own are `address@process#nanoseconds`."""

NAME_CHARS_MAX = 127
"""Longest topic or group name. 127 keeps the record in RocketMQ's version 1 (one length byte)."""

NAMESPACE_CHARS_MAX = 63
"""Longest name of a namespace. With `%` and a name in it, `NAME_CHARS_MAX` are stored."""

NAMESPACES_MAX = 1_000
"""Namespaces of a cluster; every node has their names in memory."""

CONSUMERS_SHOWN_MAX = 10
"""Client ids that an answer names when it says who consumes; RocketMQ's tools show as many."""

FILTER_CHARS_MAX = 4_096
"""Longer than any filter a person writes; keeps parsing off the profile."""

FILTER_DEPTH_MAX = 64
"""Nesting of a SQL filter; parsing and judging use the call stack."""

BROWSE_LOOK_UNITS = 4_096
"""Queue units that one look of a browse may pass; 20 bytes each, nothing else is read of them."""

FILTER_LOOK_MESSAGES = 256
FILTER_LOOK_BYTES = MIB
"""What one look through a queue may read at a time; some milliseconds of the event loop."""

PAGE_CHARS_MAX = 8 * MIB
"""A page of schedules, whose messages may be large, has no more after the first one."""

HANDLES_REMEMBERED_MAX = 16_384
"""Receipt handles that a node keeps in memory to read them back faster; about 0.5 KiB each."""

KNOWN_BLOCKS_MAX = 131_072
"""Blocks of 16 messages whose checksums a store keeps in memory, which are those of 2 million
messages; 16 bytes each, 2 MiB."""

KNOWN_LARGE_BLOCKS_MAX = 524_288
"""The same of 128 messages: those of 67 million; 8 MiB."""

UNCONFIRMED_BYTES_MAX = 64 * MIB
"""What a leader has written and other replicas have not confirmed; then it takes no more."""

CHECKS_UNLESS_SAID = 32
"""Transactions that a producer group is asked about at a time, where it does not say."""

FRAME_RESTS_MAX = 1_024
"""Queues of which a store keeps the sums of the last frame's open blocks; some 3 KiB each."""

ROW_FAULTS_MAX = 256
"""Failing rows that a background service tells apart; of more only the first are shown."""

REBUILT_UNITS_BYTES_MAX = 512 * MIB
"""Units of queues, 20 bytes a message, that a start on a full disk holds in memory at most."""

CUT_TAIL_HELD_BYTES_MAX = 64 * MIB
"""Of what is cut off the end of the log at such a start: held until there is room for it."""

STORE_TIME_LEAD_MS_MAX = 60_000
"""How far the newest store time may be ahead of the wall clock before the node says so: a clock is
set back by less every day."""

CLOCK_JUMP_MS_MAX = 3_600_000
"""How far the wall clock may jump ahead and make messages older at once."""

CLOCK_JUMP_HELD_S = 86_400
"""How long retention goes on as if it had not jumped further; then the clock is believed."""

CHECKED_AT_OPENING_BYTES = 16 * MIB
"""Of the newest log, read and checked when a store opens after a clean stop. What is older is
checked when somebody reads it."""

DAMAGE_WARNINGS_PER_KIND_MAX = 10
"""Findings of one kind of damage that a store warns of one by one in the log; then at each power of
ten. All are counted at `/metrics`."""

PROPERTIES_ENCODED_BYTES_MAX = 32_767
"""RocketMQ reads the record's properties length as a signed 16-bit integer."""

PROPERTIES_ADDED_BYTES_MAX = 3 * KIB
"""What a node may add to a message's properties on its way: where a retry or dead letter comes from
and why, for when it waits, its id, its transaction, the checksum. About 2 KiB at worst."""

MESSAGE_PROPERTIES_BYTES_MAX = PROPERTIES_ENCODED_BYTES_MAX - PROPERTIES_ADDED_BYTES_MAX
"""All properties of a message that is sent, as they are stored: the client's own, tag, keys,
sharding key, content type and id, each with its name and two separators."""

KEY_BYTES_MAX = 255
SHARDING_KEY_BYTES_MAX = 1_024
CONTENT_TYPE_BYTES_MAX = 255
MESSAGE_ID_BYTES_MAX = 255
"""Of ids that producers give. Bytes of UTF-8, like the three above."""

ENTRY_ID_CHARS_MAX = 255
"""Of the caller's own ids of the entries of a batch, which come back in the results."""

ATTEMPT_ID_CHARS_MAX = 255
"""Of the ids by which a receive is repeated; they are kept for some time."""

DURATION_CHARS_MAX = 64

PROBLEM_TEXT_CHARS_MAX = 600
"""Of a text of a problem document; of a longer one the middle is left out."""

PROBLEM_ENTRIES_MAX = 32
"""Places that a problem document names; the first of them."""

REASON_BYTES_MAX = 1_024
"""A longer reason of a nack or dead letter is cut; it is for people."""

COPY_PROPERTIES_BYTES_MAX = 63 * KIB
"""Of the copy of a message that is stored already, whoever stored it: near what a record holds, so
that as little as possible is cut of messages from before `MESSAGE_PROPERTIES_BYTES_MAX`."""

RAW_PROPERTY_HEADERS_MAX = 32
RAW_PROPERTY_HEADERS_BYTES_MAX = 4 * KIB
"""Of a message given raw, properties in headers of their own; more go in one. Python's http.client
takes 100 headers in all, the usual proxy 4 or 8 KiB."""

RAW_HEADERS_BYTES_MAX = 56 * KIB
"""All headers of a message given raw, encoded; beyond, it is to be had as JSON only. http.client
takes lines of 64 KiB, curl 100 KB."""

MAX_POLL_INTERVAL_MS_MIN = 1_000
MAX_POLL_INTERVAL_MS_MAX = 86_400_000
"""Of the time within which a member promises to poll again."""

VIRTUAL_NODES_MAX = 1_000
"""Places of one member on the ring of the strategy consistent_hash."""

CLIENTS_LISTED_MAX = 1_000
"""Clients of one group, and producers of one topic, that are listed: those that were seen last."""

CLIENTS_OF_A_PRINCIPAL_MAX = 2_000
"""Client ids of one principal that a node knows to be its; of more, those that were used last."""

CLIENT_SHOWN_MS = 600_000
"""How long a client is listed after its last request."""

CLIENT_TOPICS_SHOWN_MAX = 64
"""Topics of one client of a group that are listed."""

LANGUAGES_SHOWN_MAX = 20
"""Languages and versions of clients that `/metrics` tells apart."""

METRIC_LABELS_MAX = 500
"""Topics, and groups in topics, that `/metrics` names: those with the most messages. The others are
one sum, `_other`."""

TOPIC_RATE_MAX = 1_000_000_000
"""Messages a second that a topic's `max_rate` may say."""

TOPIC_BYTES_FRESH_S = 5
"""How old the figure of a topic's stored bytes may be to which its `max_stored_bytes` is held; what
was sent since is added."""

HOOK_BUDGET_MS_MAX = 5_000
"""The longest time that a hook may ask for: a send waits for it."""

HOOK_THREADS_MAX = 4
"""Calls of a hook at a time; of those that do not return, too."""

HOOK_EVENTS_PENDING_MAX = 10_000
"""What a hook is to be told of and has not been: more is not told."""

HOOK_HANDLES_PENDING_MAX = 100_000
"""Receipt handles in what a hook is to be told of and has not been: from there on no more is
told."""

HOOK_REASON_CHARS_MAX = 500
"""Of why a hook refuses a send; more is cut."""

RELAY_CONNECTIONS_MAX = 1_024
"""Requests that one node carries to another one at a time."""

RELAY_CONNECTIONS_PER_PRINCIPAL_MAX = 768
"""Of those, in the name of one principal."""

RELAY_IDLE_SECONDS_MAX = 30
"""A connection to another node that was idle for longer takes no more requests: the other side,
which closes it later, might do so at this moment."""

CLUSTER_HANDSHAKES_MAX = 256
"""Connections to the cluster port that have proved nothing yet; of more, the oldest end."""

SHARDS_MAX = 256
"""Shards of a cluster."""

REPLICAS_MAX = 32
"""Members that an in-sync set may name."""

NODE_NAME_CHARS_MAX = 255
"""Longest name of a node in what replicas say to each other."""

TERMS_MAX = 16_384
"""Terms of a log's history that replicas tell each other."""

REPLICA_MESSAGE_BYTES_MAX = MIB
"""What a replica says, without bytes of blocks; a history of `TERMS_MAX` terms has half of it."""

REPLICA_BLOCKS_BYTES_MAX = 256 * MIB
"""Bytes of blocks that go with one message: the largest block has to fit."""

REPLICA_UNDER_WAY_BYTES_MAX = 8 * MIB
"""What waits in a leader's memory for one follower's connection; then no more blocks are read for
it until half of that is gone."""

REPLICA_UNSENT_BYTES_MAX = 512 * MIB
"""Of a connection that takes nothing: beyond this it is closed."""

EVENTS_KEPT_MAX = 1_000
"""Events of nodes and shards; of more, the oldest go."""

NODES_KEPT_MAX = 256
"""Rows of nodes that registered once; of more, those that were not seen for longest go."""


FIXED_LIMITS: Final[Mapping[str, int]] = {
    "client_id_chars_max": CLIENT_ID_CHARS_MAX,
    "name_chars_max": NAME_CHARS_MAX,
    "namespace_chars_max": NAMESPACE_CHARS_MAX,
    "events_kept_max": EVENTS_KEPT_MAX,
    "namespaces_max": NAMESPACES_MAX,
    "nodes_kept_max": NODES_KEPT_MAX,
    "relay_connections_max": RELAY_CONNECTIONS_MAX,
    "relay_connections_per_principal_max": RELAY_CONNECTIONS_PER_PRINCIPAL_MAX,
    "shards_max": SHARDS_MAX,
    "topic_rate_max": TOPIC_RATE_MAX,
    "hook_budget_ms_max": HOOK_BUDGET_MS_MAX,
    "hook_threads_max": HOOK_THREADS_MAX,
    "hook_events_pending_max": HOOK_EVENTS_PENDING_MAX,
    "hook_handles_pending_max": HOOK_HANDLES_PENDING_MAX,
    "hook_reason_chars_max": HOOK_REASON_CHARS_MAX,
    "metric_labels_max": METRIC_LABELS_MAX,
    "clients_listed_max": CLIENTS_LISTED_MAX,
    "max_poll_interval_ms_min": MAX_POLL_INTERVAL_MS_MIN,
    "max_poll_interval_ms_max": MAX_POLL_INTERVAL_MS_MAX,
    "virtual_nodes_max": VIRTUAL_NODES_MAX,
    "clients_of_a_principal_max": CLIENTS_OF_A_PRINCIPAL_MAX,
    "client_shown_ms": CLIENT_SHOWN_MS,
    "filter_chars_max": FILTER_CHARS_MAX,
    "filter_depth_max": FILTER_DEPTH_MAX,
    "properties_encoded_bytes_max": PROPERTIES_ENCODED_BYTES_MAX,
    "raw_property_headers_max": RAW_PROPERTY_HEADERS_MAX,
    "raw_property_headers_bytes_max": RAW_PROPERTY_HEADERS_BYTES_MAX,
    "raw_headers_bytes_max": RAW_HEADERS_BYTES_MAX,
    "message_properties_bytes_max": MESSAGE_PROPERTIES_BYTES_MAX,
    "key_bytes_max": KEY_BYTES_MAX,
    "sharding_key_bytes_max": SHARDING_KEY_BYTES_MAX,
    "content_type_bytes_max": CONTENT_TYPE_BYTES_MAX,
    "message_id_bytes_max": MESSAGE_ID_BYTES_MAX,
    "reason_bytes_max": REASON_BYTES_MAX,
    "entry_id_chars_max": ENTRY_ID_CHARS_MAX,
    "attempt_id_chars_max": ATTEMPT_ID_CHARS_MAX,
}
"""Bounds that nobody can configure and a client may meet."""

ENDED_GENERATIONS_MAX: Final = 65_536
"""Generations of deleted topics for which late appends are refused: the newest ones of this life
of the store. A sender that is later still looked its topic up 65,536 deletions ago."""

HELD_DELIVERY_MS_MAX: Final = 5 * 60_000
"""How long a message that was handed out before a start is held for who has it, at most."""

GENERATION_MAX: Final = (1 << 53) - 1
"""Of a topic or group; what JSON's numbers hold exactly."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Configurable bounds. Sizes in bytes, durations in milliseconds or seconds as named."""

    body_bytes_max: int = 4 * MIB
    batch_messages_max: int = 10_000
    batch_bytes_max: int = 32 * MIB
    properties_bytes_max: int = 16 * KIB
    properties_count_max: int = 128
    keys_count_max: int = 32
    tag_bytes_max: int = 128
    queues_per_topic_max: int = 1_024
    queues_max: int = 65_536
    topics_max: int = 10_000
    groups_max: int = 10_000
    deleted_names_max: int = 65_536
    deleted_queues_max: int = 131_072
    pull_messages_max: int = 10_000
    pull_bytes_max: int = 8 * MIB
    in_place_messages_max: int = 20_000
    in_place_bytes_max: int = 16 * MIB
    pull_scan_units_max: int = 50_000
    filter_looks_max: int = 64
    receive_messages_max: int = 1_024
    receive_bytes_max: int = 8 * MIB
    wait_seconds_max: int = 60
    waiters_max: int = 20_000
    requests_waiting_max: int = 5_000
    invisible_ms_min: int = 1_000
    invisible_ms_max: int = 12 * 3_600_000
    header_block_bytes_max: int = 16 * KIB
    unpacking_ratio_max: int = 100
    stored_ratio_max: int = 10
    bodies_in_flight_bytes_max: int = 256 * MIB
    answers_in_flight_bytes_max: int = 256 * MIB
    header_count_max: int = 256
    request_target_bytes_max: int = 32 * KIB
    connections_max: int = 10_000
    connections_per_address_max: int = 5_000
    refused_connections_max: int = 256
    file_answers_max: int = 1_024
    store_files_max: int = 2_048
    first_byte_ms_max: int = 10_000
    request_head_ms_max: int = 10_000
    request_body_ms_max: int = 20_000
    request_body_bytes_per_second_min: int = 8 * KIB
    idle_connection_ms_max: int = 75_000
    unread_answer_ms_max: int = 60_000
    linger_ms_max: int = 2_000
    page_size_max: int = 1_000
    topics_per_look_max: int = 256
    producers_max: int = 100_000
    producer_sequences_max: int = 400_000
    producer_window_ms: int = 7 * 86_400_000
    producer_idle_ms_min: int = 600_000
    producer_results_max: int = 64
    idempotency_keys_max: int = 250_000
    idempotency_window_ms: int = 600_000
    idempotency_key_chars_max: int = 255
    pending_append_bytes_max: int = 256 * MIB
    replication_wait_ms: int = 5_000
    streams_max: int = 1_000
    streams_per_principal_max: int = 250
    stream_credit_max: int = 1_024
    stream_chunk_bytes_max: int = 256 * KIB
    stream_heartbeat_ms: int = 15_000
    stream_ms_max: int = 3_600_000
    stream_unread_ms_max: int = 30_000
    group_in_flight_max: int = 20_000
    ordered_lookahead_max: int = 10_000
    retention_ms_min: int = 60_000
    retention_ms_max: int = 3_650 * 86_400_000
    attempts_max: int = 1_000
    delay_ms_max: int = 40 * 86_400_000
    scheduled_scan_max: int = 2_000
    schedules_max: int = 10_000
    retry_delays_max: int = 64
    transaction_check_after_ms: int = 6_000
    transaction_check_after_ms_min: int = 1_000
    transaction_check_after_ms_max: int = 12 * 3_600_000
    transaction_check_interval_ms: int = 30_000
    transaction_checks_max: int = 15
    transactions_pending_max: int = 100_000
    transactions_remembered_max: int = 100_000
    member_lease_ms: int = 30_000
    members_per_group_max: int = 1_000
    members_max: int = 20_000
    subscriptions_per_group_max: int = 1_000
    subscribed_queues_max: int = 262_144
    subscriptions_per_member_max: int = 64
    queue_lock_ms: int = 60_000
    rebalance_history_max: int = 100
    offset_snapshots_per_group_max: int = 32
    dead_letters_scanned_max: int = 20_000
    dead_letters_selected_max: int = 10_000
    operations_running_max: int = 16
    operations_per_principal_max: int = 8
    operations_kept_max: int = 1_000
    trace_notes_pending_max: int = 200_000
    statistics_rows_max: int = 1_000
    clients_max: int = 20_000
    trace_records_read_max: int = 2_000
    trace_notes_searched_max: int = 20_000
    trace_results_max: int = 200

    def __post_init__(self) -> None:
        """Raise `ContradictingLimits` for bounds that cannot hold together."""
        for low, factor, high in ORDERED:
            most = PROPERTIES_ENCODED_BYTES_MAX if high == _ENCODED else getattr(self, high)
            given = getattr(self, low)
            if factor * given > most:
                times = f"{factor} times " if factor > 1 else ""
                raise ContradictingLimits(
                    f"{low} = {given}: {times}it is over {high}, which is {most}", (low, high)
                )
        for name in _POSITIVE:
            if getattr(self, name) <= 0:
                raise ContradictingLimits(f"{name} = {getattr(self, name)}: use 1 or more", (name,))

    def take_over(self, others: "Limits") -> None:
        """Have the values of `others` from now on, for everybody who has this object.

        For the running configuration alone, which changes bounds that are read at each use
        (`CHANGEABLE_LIMITS`). Event loop; other threads see each value before or after.
        """
        for each in fields(self):
            object.__setattr__(self, each.name, getattr(others, each.name))


class ContradictingLimits(ValueError):
    """Bounds that cannot hold together; `names` are those of the bounds."""

    def __init__(self, text: str, names: tuple[str, ...]) -> None:
        super().__init__(text)
        self.names = names


CHANGEABLE_LIMITS: Final = frozenset(
    {
        *("topics_max", "groups_max", "queues_max", "queues_per_topic_max", "schedules_max"),
        *("retention_ms_min", "retention_ms_max", "invisible_ms_min", "invisible_ms_max"),
        *("attempts_max", "delay_ms_max", "retry_delays_max", "group_in_flight_max"),
        *("batch_messages_max", "pull_messages_max", "receive_messages_max", "receive_bytes_max"),
        *("wait_seconds_max", "page_size_max", "topics_per_look_max", "requests_waiting_max"),
        *("producers_max", "producer_sequences_max", "producer_window_ms"),
        *("idempotency_keys_max", "idempotency_window_ms"),
        *("streams_max", "streams_per_principal_max", "stream_credit_max"),
        *("stream_heartbeat_ms", "stream_unread_ms_max"),
        *("transactions_pending_max", "transaction_check_after_ms"),
        *("transaction_check_after_ms_min", "transaction_check_after_ms_max"),
        *("members_max", "members_per_group_max", "subscriptions_per_group_max"),
        *("subscriptions_per_member_max", "offset_snapshots_per_group_max"),
        *("operations_running_max", "operations_per_principal_max", "operations_kept_max"),
        "dead_letters_scanned_max",
        *("scheduled_scan_max", "trace_notes_pending_max", "trace_records_read_max"),
    }
)
"""Bounds that may change while a node runs: they are read where they are needed, each time, and
what is there already stays. A test looks that no code keeps one of them."""

_ENCODED: Final = "properties_encoded_bytes_max"
ORDERED: Final = (
    ("body_bytes_max", 1, "batch_bytes_max"),
    ("properties_bytes_max", 1, _ENCODED),
    ("queues_per_topic_max", 1, "queues_max"),
    ("invisible_ms_min", 1, "invisible_ms_max"),
    ("batch_bytes_max", 1, "pending_append_bytes_max"),
    ("batch_bytes_max", 2, "bodies_in_flight_bytes_max"),
    ("retention_ms_min", 1, "retention_ms_max"),
    ("transaction_check_after_ms_min", 1, "transaction_check_after_ms_max"),
    ("transaction_check_after_ms_min", 1, "transaction_check_after_ms"),
    ("transaction_check_after_ms", 1, "transaction_check_after_ms_max"),
)
"""(bound, factor, bound): so many times the first is at most the second."""
_POSITIVE: Final = (
    *("invisible_ms_min", "member_lease_ms", "queue_lock_ms", "retention_ms_min"),
    "replication_wait_ms",
)


PRINCIPALS_MAX = 10_000
PATTERNS_OF_A_PRINCIPAL_MAX = 100
"""Names, or beginnings of names, that its roles are kept to."""
NETWORKS_OF_A_PRINCIPAL_MAX = 32
"""Networks that it is let in from. Each costs a comparison for each of its requests."""
ROLES_OF_A_PRINCIPAL_MAX = 16
POLICIES_MAX = 1_000
DECISIONS_MAX = 65_536
"""On the names in a path, that a node remembers while nothing changes in who may do what."""
ADMINISTRATOR_MS_MIN = 86_400_000
"""No change leaves administrators only keys that end before that, unless there were no others."""
KEYS_OF_A_PRINCIPAL_MAX = 2
"""One in use and the one that takes its place."""
KEY_EXPIRES_MS_MAX = 10 * 366 * 86_400_000

LEASES_ENDED_PER_LOOK_MAX = 10_000
"""Leases and delays of a queue and group that one look ends; the others end in later turns of the
event loop."""

POLICY_FRESH_S = 10
"""How long nodes go on to change things without hearing of keys and policies."""

AUDIT_TEXT_CHARS_MAX = 4_096
"""Of what an entry of the audit says of a thing before, and after; more is cut."""
AUDIT_ENTRIES_MAX = 1_000_000
"""Of one chain, looked at each hour: of more the oldest go before their days are over."""
DENIALS_MAX = 1_024
"""Denials of principals by who, action and reason, and as many of strangers, that a node adds up
until they are written, each 10 seconds. Of more, only how many there were is known."""
FORCED_MAX = 1_024
"""Forced changes of consumers that a node keeps until they are written, each 10 seconds."""
TOKEN_BYTES_MAX = 8 * KIB
"""A longer JSON Web Token is refused unread."""
TOKEN_LEEWAY_S = 60
"""How far the clocks of issuer and node may be apart."""
TOKEN_ROLES_MAX = 256
"""Values of the claim of roles that are looked at."""
TOKEN_SUBJECT_CHARS_MAX = 255
TOKENS_REMEMBERED_MAX = 4_096
"""Good tokens that are not checked again."""

SPAN_HANDLES_MAX = 20_000
"""Receipt handles of which a node with OpenTelemetry remembers the trace: the last ones."""
SPAN_LINKS_MAX = 128
"""Messages that one span is linked to."""

QUOTA_ROWS_MAX = 20_000
"""Principals, and as many topics, that a node keeps buckets of: those that were used last."""
FAILING_ADDRESSES_MAX = 10_000
"""Addresses that wrong keys, or failed handshakes, are counted of; of more, the last ones."""

DEFAULT_PULL_MESSAGES = 32
"""RocketMQ's pullBatchSize."""

DEFAULT_POLL_MESSAGES = 256
DEFAULT_POLL_BYTES = 8 * MIB

DEFAULT_PAGE_SIZE = 100
DEFAULT_TRACE_PAGE_SIZE = 50

DEFAULT_REQUEST_WAIT_S = 10

SEND_TIMEOUT_S_MAX = 600
"""A send that names a time waits no longer for the medium."""

DEFAULT_RECEIVE_MESSAGES = 1
DEFAULT_INVISIBLE_MS = 30_000
"""SQS's default visibility timeout; RocketMQ's POP uses 60 s."""

DEFAULT_MAX_ATTEMPTS = 16
"""RocketMQ's maxReconsumeTimes for push consumers."""

DEFAULT_MAX_IN_FLIGHT = 20_000
"""SQS allows 20,000 in flight on a first-in-first-out queue, 120,000 on a standard one."""

DEFAULT_QUEUES = 4
"""RocketMQ's defaultTopicQueueNums."""

DEFAULT_RETENTION_MS = 72 * 3_600_000
"""RocketMQ's fileReservedTime."""

DEAD_LETTER_RETENTION_MS = 14 * 86_400_000
"""SQS's longest retention: dead letters wait for people. Retries are kept as long as their topic's
messages."""

UI_SESSION_S = 12 * 3_600
"""How long a browser stays signed in."""
UI_SESSIONS_MAX = 1_000
"""Browsers that are signed in at a node; of more, those that signed in last."""
UI_SESSIONS_OF_A_PRINCIPAL_MAX = 100
"""Of them, browsers of one principal."""
UI_STREAMS_MAX = 64
"""Open pages that a node keeps live; another one shows what was when it was opened."""
UI_STREAMS_OF_A_PRINCIPAL_MAX = 16
"""Of them, those of one principal."""
UI_FORM_BYTES_MAX = 8 * MIB
"""Of a form that a page sends: a body of a message takes up to three bytes of it for each byte."""
UI_FORM_OF_ANYBODY_BYTES_MAX = 64 * KIB
"""Of a form that needs no key: the sign-in."""
UI_FORM_FIELDS_MAX = 1_000
"""Of a form: a page of letters has 50 that can be chosen."""
