"""Everything the connector raises. A stable code comes first in each text.

Spark wraps an error of a Python source in several hundred characters of its own, so the code is
what a reader or an alert can search for. The exceptions carry text only: they are pickled on their
way from an executor to the driver. Raised by every module of the package, caught inside it only
where a retry or `failOnDataLoss=false` asks for it.
"""

import logging
from collections.abc import Sequence
from typing import ClassVar

_ADVICE = (
    "Set option failOnDataLoss=false to skip them, raise the topic's retention, or start a new"
    " checkpoint."
)
_LOG = logging.getLogger("pyspark_curlew")


class ConnectorError(Exception):
    """Root of the tree; `str()` begins with the code."""

    code: ClassVar[str] = "CURLEW_FAILED"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"


class OptionInvalid(ConnectorError):
    """An option has a value that it cannot have."""

    code = "CURLEW_OPTION_INVALID"


class OptionMissing(ConnectorError):
    """An option that has no default was not given."""

    code = "CURLEW_OPTION_MISSING"


class OptionConflict(ConnectorError):
    """Options that exclude each other, or one that has no meaning here."""

    code = "CURLEW_OPTION_CONFLICT"


class OptionUnknown(ConnectorError):
    """An option that the connector does not know; most often a typing mistake."""

    code = "CURLEW_OPTION_UNKNOWN"


class SchemaMismatch(ConnectorError):
    """The user gave a schema; the connector's is fixed."""

    code = "CURLEW_SCHEMA"


class RowRefused(ConnectorError):
    """A row that is to be sent cannot be a message."""

    code = "CURLEW_ROW_REFUSED"


class OffsetVersionUnknown(ConnectorError):
    """A checkpoint was written by another source, or by a connector newer than this one."""

    code = "CURLEW_OFFSET_VERSION"


class DataLoss(ConnectorError):
    """Messages that the query should have read are gone, and `failOnDataLoss` is true."""

    code = "CURLEW_DATA_LOSS"


class TopicNotFound(ConnectorError):
    """The topic or queue does not exist."""

    code = "CURLEW_TOPIC_NOT_FOUND"


class AccessDenied(ConnectorError):
    """The service refused the credentials (401 or 403). Never retried."""

    code = "CURLEW_AUTH_FAILED"


class RequestRefused(ConnectorError):
    """The service refused the request as such; the same request can never succeed."""

    code = "CURLEW_REQUEST_REFUSED"


class ServiceUnavailable(ConnectorError):
    """The service gave no usable answer in the allowed number of attempts."""

    code = "CURLEW_UNAVAILABLE"


class ProducerFenced(ConnectorError):
    """A later batch of the query has sent; this task is a straggler."""

    code = "CURLEW_FENCED"


class SequenceBroken(ConnectorError):
    """The service lacks messages that this task has sent before; a repeated task sends them."""

    code = "CURLEW_SEQUENCE"


class EpochSealed(ConnectorError):
    """The batch is stored and closed. Never leaves the package: the task is done."""

    code = "CURLEW_SEALED"


class ProtocolViolation(ConnectorError):
    """An answer that does not follow the contract: version, shape or size."""

    code = "CURLEW_PROTOCOL"


class FrameDamaged(ProtocolViolation):
    """A batch frame that fails its checks. Fetched again before it is reported."""


class Unsupported(ConnectorError):
    """Valid input that this version of the connector does not take."""

    code = "CURLEW_UNSUPPORTED"


def report_loss(lost: Sequence[str], *, fail: bool) -> None:
    """Raise `DataLoss` with the first of the descriptions in `lost`, or log each as a warning."""
    if not lost:
        return
    if fail:
        more = f" And {len(lost) - 1} more." if len(lost) > 1 else ""
        raise DataLoss(f"{lost[0]}{more} {_ADVICE}")
    for part in lost:
        _LOG.warning("%s: %s failOnDataLoss is false, going on.", DataLoss.code, part)
