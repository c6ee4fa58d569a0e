"""RocketMQ's SQL92 filters over the properties of a message: own parser, compiled to closures."""

from app.broker.sql_filter.compiling import Properties, compile_condition
from app.broker.sql_filter.faults import Fault, NotComparable
from app.broker.sql_filter.parsing import parse
from app.broker.sql_filter.syntax import Node
from app.broker.sql_filter.tag_choice import tags_of

__all__ = ["Fault", "Node", "NotComparable", "Properties", "compile_condition", "parse", "tags_of"]
