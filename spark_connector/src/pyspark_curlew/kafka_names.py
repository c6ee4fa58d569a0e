"""What Kafka's source and sink call it: hints for whoever writes options from memory. Pure data.

Called by `option_reader`, for names that are not known.
"""

from typing import Final

_GROUP: Final = (
    "'consumerGroup' commits progress to a group for the service's tools; the checkpoint alone"
    " decides where a query goes on"
)
_RETRIES: Final = "'retryTimeoutMs' says for how long a request is tried again"
HINTS: Final = {
    "kafka.bootstrap.servers": "'endpoint' is the address here, such as http://host:8710",
    "bootstrap.servers": "'endpoint' is the address here, such as http://host:8710",
    "subscribe": "'topic' names one topic, 'topics' several with commas",
    "subscribepattern": "'topicsPattern' is the regular expression here",
    "assign": "'queues' chooses queues here, beside 'topic' or 'topics': {\"orders\":[0,1]}",
    "groupid": _GROUP,
    "groupidprefix": _GROUP,
    "kafka.group.id": _GROUP,
    "kafka.group.instance.id": _GROUP,
    "kafka.auto.offset.reset": "'startingOffsets' says where a query begins",
    "kafkaconsumer.polltimeoutms": "'readTimeoutMs' bounds a request, 'pollWaitMs' an idle look",
    "fetchoffset.numretries": _RETRIES,
    "fetchoffset.retryintervalms": _RETRIES,
    "kafka.retries": _RETRIES,
    "kafka.delivery.timeout.ms": _RETRIES,
    "kafka.request.timeout.ms": "'readTimeoutMs' bounds a request",
    "kafka.max.poll.records": "a task pulls up to 16 MiB at a time, there is nothing to set",
    "kafka.batch.size": "'sendMaxBytes' and 'sendMaxMessages' bound a request of the sink",
    "kafka.compression.type": "'compression' = zstd packs what goes over the network",
    "kafka.acks": "a topic's setting 'flush' says when a row counts as stored",
    "kafka.enable.idempotence": "'idempotence' is true by default",
    "kafka.transactional.id": "the sink stores each row once without it",
    "kafka.isolation.level": "only committed messages can be read",
    "kafka.security.protocol": "an 'endpoint' that begins with https: is encrypted",
    "kafka.sasl.mechanism": "'token', 'tokenFile' or 'tokenEnv' give an API key",
    "kafka.sasl.jaas.config": "'token', 'tokenFile' or 'tokenEnv' give an API key",
    "kafka.ssl.truststore.location": "'tls.ca' names a PEM file of authorities",
    "kafka.ssl.keystore.location": "'tls.cert' and 'tls.key' name PEM files",
    "cafile": "'tls.ca' names a PEM file of authorities",
    "retries": _RETRIES,
    "retrybackoffms": _RETRIES,
    "retrymaxbackoffms": _RETRIES,
}
OTHERS_OF_KAFKA: Final = "there is no Kafka client here to take options that begin with 'kafka.'"


def hint_for(name: str) -> str | None:
    """What to use in place of the option `name` of Kafka's source; None: it is none of these."""
    lowered = name.lower()
    if lowered.startswith("kafka."):
        return HINTS.get(lowered, OTHERS_OF_KAFKA)
    return HINTS.get(lowered)
