"""A streaming listener that commits offsets without lag.

Spark tells a source that a batch is done only when the next one is planned, so what the source
itself commits is one batch behind, and stays so when the query ends. This listener runs in the
driver and commits at the end of each batch. It finds our sources by their offset's form, not by
their place in the query. Applications make it and hand it to `spark.streams.addListener`.
"""

import json
from collections.abc import Mapping

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from pyspark_curlew.client import CurlewClient
from pyspark_curlew.commits import commit_positions
from pyspark_curlew.http_options import HTTP_NAMES, read_http_options
from pyspark_curlew.offsets import FORMAT, StreamOffset
from pyspark_curlew.option_reader import OptionReader


class GroupCommitListener(StreamingQueryListener):
    """Commits the end of each batch of every Curlew source to one consumer group."""

    def __init__(
        self, group: str, options: Mapping[str, str], query_name: str | None = None
    ) -> None:
        """`options` are those of the connection, `endpoint` above all; other queries are passed
        over when `query_name` is given."""
        reader = OptionReader(options, HTTP_NAMES)
        self._client = CurlewClient(read_http_options(reader))
        self._group = group
        self._query_name = query_name

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing has been read yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        progress = event.progress
        if self._query_name is None or progress.name == self._query_name:
            for source in progress.sources:
                self.commit(source.endOffset)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """The last batch has been committed with its progress."""

    def commit(self, end_offset: str | None) -> None:
        """Commit one source's end offset, given as JSON; others' are passed over."""
        try:
            document = json.loads(end_offset or "null")
        except ValueError:
            return
        if isinstance(document, dict) and document.get("fmt") == FORMAT:
            commit_positions(self._client, self._group, StreamOffset.from_json(document).positions)
