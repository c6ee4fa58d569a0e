"""What happens when messages that should be read are gone: an error, or a warning and going on.

One rule for driver and executors. Called by `stream` and `pulling`.
"""

import logging
from collections.abc import Sequence

from pyspark_curlew.errors import DataLoss

_ADVICE = (
    "Set option failOnDataLoss=false to skip them, raise the topic's retention, or start a new"
    " checkpoint."
)
_LOG = logging.getLogger("pyspark_curlew")


def report_loss(lost: Sequence[str], *, fail: bool) -> None:
    """Raise `DataLoss` with the first of the descriptions in `lost`, or log each as a warning."""
    if not lost:
        return
    if fail:
        more = f" And {len(lost) - 1} more." if len(lost) > 1 else ""
        raise DataLoss(f"{lost[0]}{more} {_ADVICE}")
    for part in lost:
        _LOG.warning("%s: %s failOnDataLoss is false, going on.", DataLoss.code, part)
