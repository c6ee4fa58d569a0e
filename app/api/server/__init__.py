"""The guarded server: deadlines, bounds and refusals below ASGI, on each connection."""

from app.api.server.connections import Connections
from app.api.server.protocol import guarded
from app.api.server.tls_listener import TlsListener

__all__ = ["Connections", "TlsListener", "guarded"]
