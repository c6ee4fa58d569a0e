"""Property names that are the store's and the broker's own business, as the service lists them.

RocketMQ's and Curlew's reserved names but for those that say something of the message itself
(keys, tag, sharding key, the client's id, content type, correlation id). The service's JSON leaves
them out of `properties`, too. The list stands here again because the connector shares no code with
the service; a test holds the two against each other. Called by `columns`.
"""

from typing import Final

SHOWN: Final = frozenset(
    {b"KEYS", b"TAGS", b"UNIQ_KEY", b"__SHARDINGKEY", b"MQ_CONTENT_TYPE", b"CORRELATION_ID"}
)
"""Reserved names that are the message's own."""

HIDDEN: Final = frozenset(
    b"""WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET BUYER_ID
    ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION TRACE_ON
    EXTEND_UNIQ_INFO MAX_RECONSUME_TIMES CONSUME_START_TIME INNER_NUM INNER_BASE DUP_INFO
    CHECK_IMMUNITY_TIME_IN_SECONDS TRAN_PREPARED_QUEUE_OFFSET __transactionId__
    TRANSACTION_CHECK_TIMES INSTANCE_ID REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME CLUSTER
    MSG_TYPE POP_CK POP_CK_OFFSET 1ST_POP_TIME FORWARD_QUEUE_ID REDIRECT INNER_MULTI_DISPATCH
    INNER_MULTI_QUEUE_OFFSET TRACE_CONTEXT TIMER_DELAY_SEC TIMER_DELIVER_MS TIMER_DELAY_MS
    TIMER_IN_MS TIMER_OUT_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES TIMER_DEL_UNIQKEY
    TIMER_DELAY_LEVEL DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID __CRC32# MQ_REPLY_BY MQ_STEP MQ_TIMER
    MQ_GENERATION MQ_SNAPSHOT MQ_ID MQ_ORIGIN_PLACE MQ_REASON MQ_CHECKS""".split()
)
"""Names that the column `properties` does not show."""
