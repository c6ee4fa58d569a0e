"""What send, pull, receive and settle mean. No HTTP, no SQL, no OS calls."""

from app.broker.broker import Broker
from app.broker.config import BrokerConfig

__all__ = ["Broker", "BrokerConfig"]
