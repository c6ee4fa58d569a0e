"""Faults of the node: its store, its disk, its code."""

from app.domain.errors.error import CurlewError


class NodeFault(CurlewError):
    """We are broken; another node may do better."""

    title = "The node failed"


class InternalError(NodeFault):
    """An unexpected failure; the log has the traceback under the request id."""

    code = "INTERNAL_SERVER_ERROR"
    title = "The node met an unexpected failure"


class StoreFailed(NodeFault):
    """A write or sync failed. Sticky: the node takes no further writes until it is restarted."""

    code = "STORE_FAILED"
    title = "The store takes no writes"


class DiskFull(NodeFault):
    """The disk has no room; sending resumes by itself when there is."""

    code = "DISK_FULL"
    title = "The disk is full"
    retryable = True
