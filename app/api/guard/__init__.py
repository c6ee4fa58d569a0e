"""The guarded server: deadlines, bounds and refusals below ASGI, on each connection."""

from app.api.guard.connections import Connections
from app.api.guard.protocol import guarded

__all__ = ["Connections", "guarded"]
