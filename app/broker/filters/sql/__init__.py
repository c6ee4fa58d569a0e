"""RocketMQ's SQL92 filters over the properties of a message: own parser, compiled to closures."""

from app.broker.filters.sql.compiler import Properties, compile_condition
from app.broker.filters.sql.faults import Fault, NotComparable
from app.broker.filters.sql.parser import parse
from app.broker.filters.sql.syntax import Node
from app.broker.filters.sql.tag_choice import tags_of

__all__ = ["Fault", "Node", "NotComparable", "Properties", "compile_condition", "parse", "tags_of"]
