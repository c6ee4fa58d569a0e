"""Pulls of one range, some of them made ahead of time by threads.

The range is cut into windows; the first pulls of the next windows are under way while the current
one is decoded and handed to Spark. A window that needs more than one pull (its messages are large)
gets the rest when it is its turn, and the windows after it are cut smaller, so that no more than
`prefetch` answers of `pullMaxBytes` wait. Called by `pulling`; not for several threads.
"""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from pyspark_curlew.client import CurlewClient, OutOfRange, Pulled
from pyspark_curlew.options import SourceOptions
from pyspark_curlew.planning import QueueRange


class _Window(NamedTuple):
    start: int
    end: int
    answer: "Future[Pulled | OutOfRange]"


class ReadAhead:
    """Answers by position, in ascending order of positions."""

    def __init__(self, wanted: QueueRange, options: SourceOptions, client: CurlewClient) -> None:
        self._wanted = wanted
        self._options = options
        self._client = client
        self._windows: deque[_Window] = deque()
        self._planned = wanted.start
        """Where the next window begins."""
        self._size = options.pull_max_messages
        self._threads: ThreadPoolExecutor | None = None
        if options.prefetch and wanted.size > self._size:
            self._threads = ThreadPoolExecutor(options.prefetch, "curlew-pull")

    def pull(self, position: int, wait_s: int = 0) -> Pulled | OutOfRange:
        """The messages from `position` on; perhaps only those up to the next window."""
        while self._windows and self._windows[0].start < position:
            self._windows.popleft().answer.cancel()
        if self._windows and self._windows[0].start == position:
            end, pending = self._windows[0].end, self._windows.popleft().answer
            self._look_ahead(end)
            answer = pending.result()
        else:
            limit = self._windows[0].start if self._windows else self._wanted.end
            end = min(position + self._size, limit)
            self._look_ahead(end)
            answer = self._pull(position, end, wait_s)
        if isinstance(answer, Pulled) and position < answer.next_offset < end:
            self._size = max(1, min(self._size, answer.next_offset - position))
        return answer

    def close(self) -> None:
        """Give up what is under way; waits for requests that have been sent."""
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)

    def _look_ahead(self, reached: int) -> None:
        if self._threads is None:
            return
        self._planned = max(self._planned, reached)
        while len(self._windows) < self._options.prefetch and self._planned < self._wanted.end:
            start, end = self._planned, min(self._planned + self._size, self._wanted.end)
            answer = self._threads.submit(self._pull, start, end, 0)
            self._windows.append(_Window(start, end, answer))
            self._planned = end

    def _pull(self, start: int, end: int, wait_s: int) -> Pulled | OutOfRange:
        return self._client.pull(
            self._wanted.topic,
            self._wanted.queue,
            start,
            end_offset=end,
            max_messages=end - start,
            max_bytes=self._options.pull_max_bytes,
            wait_s=wait_s,
            filter_tags=self._options.filter_tags,
        )
