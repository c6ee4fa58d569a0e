"""The operations of the data plane, each described once and routed to its handler."""

from app.api.dataplane.routes.routing import OPERATIONS, build_router

__all__ = ["OPERATIONS", "build_router"]
