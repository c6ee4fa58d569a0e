"""Names in queries and bodies of the control plane: given as clients call them, kept as stored.

A request model that names a topic, a group or a producer uses these types for it, so that below it
there are stored names only. Names in answers need no type: `JsonLine` shows them.
"""

from typing import Annotated

from pydantic import AfterValidator

from app.api.naming.request_namespace import stored


def _topic(name: str) -> str:
    return stored("topic", name)


def _group(name: str) -> str:
    return stored("group", name)


def _producer(name: str) -> str:
    return stored("producer", name)


def _producer_group(name: str) -> str:
    return stored("producer group", name)


TopicName = Annotated[str, AfterValidator(_topic)]
GroupName = Annotated[str, AfterValidator(_group)]
ProducerName = Annotated[str, AfterValidator(_producer)]
ProducerGroupName = Annotated[str, AfterValidator(_producer_group)]
