"""The guarded server: deadlines, bounds and refusals below ASGI, on each connection."""

from app.api.server.connections import Connections
from app.api.server.protocol import guarded

__all__ = ["Connections", "guarded"]
