"""What Kafka's source and sink call it: hints for whoever writes options from memory. Pure data.

Called by `option_reader`, for names that are not known.
"""

from typing import Final

_GROUP: Final = (
    "'consumerGroup' commits progress to a group for the service's tools; the checkpoint alone"
    " decides where a query goes on"
)
_RETRIES: Final = "'retryTimeoutMs' says for how long a request is tried again"
_ADDRESS: Final = "'endpoint' is the address here, such as http://host:8710"
_KEY: Final = "'token', 'tokenFile' or 'tokenEnv' give an API key"
_QUEUES: Final = "'queues' chooses queues here, beside 'topic' or 'topics': {\"orders\":[0,1]}"
_AUTHORITIES: Final = "'tls.ca' names a PEM file of authorities"
_KEY_FILES: Final = "'tls.cert' and 'tls.key' name PEM files, without a password"
_PULLS: Final = "a task pulls up to 16 MiB at a time, there is nothing to set"
_REQUESTS: Final = "'sendMaxBytes' and 'sendMaxMessages' bound a request of the sink"
_BYTES: Final = "'key' and 'value' are columns of bytes: cast them, or use from_json"
HINTS: Final = {
    "subscribe": "'topic' names one topic, 'topics' several with commas",
    "subscribepattern": "'topicsPattern' is the regular expression here",
    "assign": _QUEUES,
    "groupidprefix": _GROUP,
    "kafkaconsumer.polltimeoutms": "'readTimeoutMs' bounds a request, 'pollWaitMs' an idle look",
    "fetchoffset.numretries": _RETRIES,
    "fetchoffset.retryintervalms": _RETRIES,
    "usedeprecatedoffsetfetching": "there is one way of asking for offsets; leave it out",
    **dict.fromkeys(("groupid", "group_id", "group"), _GROUP),
    **dict.fromkeys(("brokers", "servers", "bootstrapservers", "url", "host"), _ADDRESS),
    **dict.fromkeys(("apikey", "api_key", "api.key"), _KEY),
    **dict.fromkeys(("partition", "partitions"), _QUEUES),
    **dict.fromkeys(("retries", "retrybackoffms", "retrymaxbackoffms"), _RETRIES),
    "cafile": _AUTHORITIES,
    "paths": "'topics' names several topics, with commas",
    "headers": "'includeHeaders' adds a column; a name behind 'headers.' gives requests a header",
}
"""By names in lower case."""
CLIENT_HINTS: Final = {
    "bootstrap.servers": _ADDRESS,
    "group.id": _GROUP,
    "group.instance.id": _GROUP,
    "enable.auto.commit": _GROUP,
    "auto.offset.reset": "'startingOffsets' says where a query begins",
    **dict.fromkeys(("retries", "retry.backoff.ms", "delivery.timeout.ms"), _RETRIES),
    **dict.fromkeys(("max.block.ms", "default.api.timeout.ms"), _RETRIES),
    "request.timeout.ms": "'readTimeoutMs' bounds a request",
    **dict.fromkeys(("max.poll.records", "max.partition.fetch.bytes", "fetch.max.bytes"), _PULLS),
    **dict.fromkeys(("batch.size", "max.request.size", "linger.ms", "buffer.memory"), _REQUESTS),
    "client.rack": "'readFrom' says from which replica of a queue a task reads",
    "compression.type": "'compression' = zstd packs what goes over the network",
    "acks": "a topic's setting 'flush' says when a row counts as stored",
    "enable.idempotence": "'idempotence' is true by default",
    "transactional.id": "the sink stores each row once without it",
    "isolation.level": "only committed messages can be read",
    **dict.fromkeys(("key.deserializer", "value.deserializer"), _BYTES),
    **dict.fromkeys(("key.serializer", "value.serializer"), _BYTES),
    "security.protocol": "an 'endpoint' that begins with https: is encrypted",
    **dict.fromkeys(("sasl.mechanism", "sasl.jaas.config"), _KEY),
    **dict.fromkeys(("ssl.truststore.location", "ssl.ca.location"), _AUTHORITIES),
    **dict.fromkeys(("ssl.keystore.location", "ssl.key.location"), _KEY_FILES),
    **dict.fromkeys(("ssl.keystore.password", "ssl.key.password"), _KEY_FILES),
    "ssl.truststore.password": "'tls.ca' names a PEM file, which has no password",
    "ssl.endpoint.identification.algorithm": "'tls.verify' = false trusts any certificate",
}
"""Settings of Kafka's clients, which Spark takes behind `kafka.`."""
OTHERS_OF_KAFKA: Final = "there is no Kafka client here to take options that begin with 'kafka.'"


def hint_for(name: str) -> str | None:
    """What to use in place of the option `name` of Kafka's source; None: it is none of these."""
    lowered = name.lower()
    if lowered.startswith("kafka."):
        return CLIENT_HINTS.get(lowered.removeprefix("kafka."), OTHERS_OF_KAFKA)
    return HINTS.get(lowered) or CLIENT_HINTS.get(lowered)
