"""Pulls of one range, one of them made ahead of time by a thread.

The range is cut into windows; the first pull of the next window is under way while the current one
is decoded and handed to Spark. A window that needs more than one pull (its messages are large) gets
the rest when it is its turn, and the windows after it are cut smaller, so that no more than one
answer of `pull_max_bytes` waits. Windows end at multiples of their size, which is itself a multiple
of `BLOCK_RECORDS` where it can be: such pulls cost the service least. Called by `pulling`; not for
several threads.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple

from pyspark_curlew.http.client import CurlewClient, OutOfRange, Pull, Pulled
from pyspark_curlew.options import SourceOptions
from pyspark_curlew.reading.planning import QueueRange

BLOCK_RECORDS: Final = 128
"""Messages of which the service knows a checksum, from multiples on (the batch frame's page)."""


class _Window(NamedTuple):
    start: int
    end: int
    answer: "Future[Pulled | OutOfRange]"


class ReadAhead:
    """Answers by position, in ascending order of positions."""

    def __init__(
        self,
        wanted: QueueRange,
        options: SourceOptions,
        client: CurlewClient,
        first: Pulled | OutOfRange | None = None,
    ) -> None:
        """`first`: the answer to a pull of all that is `wanted`, if there was one."""
        self._wanted = wanted
        self._first = first
        self._options = options
        self._client = client
        self._ahead: _Window | None = None
        self._size = options.pull_max_messages
        self._threads: ThreadPoolExecutor | None = None
        if wanted.size > self._size:
            self._threads = ThreadPoolExecutor(1, "curlew-pull")

    def pull(self, position: int, wait_s: int = 0) -> Pulled | OutOfRange:
        """The messages from `position` on; perhaps only those up to the next window."""
        if self._first is not None:
            first, self._first = self._first, None
            return first
        ahead = self._ahead
        if ahead is not None and ahead.start == position:
            end = ahead.end
            self._look_ahead(end)
            answer = ahead.answer.result()
        elif ahead is not None and ahead.start > position:
            end = self._end_of_window(position, ahead.start)
            answer = self._pull(position, end, wait_s)
        else:
            end = self._end_of_window(position, self._wanted.end)
            self._look_ahead(end)
            answer = self._pull(position, end, wait_s)
        if isinstance(answer, Pulled) and position < answer.next_offset < end:
            self._size = _in_blocks(min(self._size, answer.next_offset - position))
        return answer

    def close(self) -> None:
        """Give up what is under way; waits for requests that have been sent."""
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)

    def _look_ahead(self, start: int) -> None:
        self._ahead = None
        if self._threads is not None and start < self._wanted.end:
            end = self._end_of_window(start, self._wanted.end)
            self._ahead = _Window(start, end, self._threads.submit(self._pull, start, end, 0))

    def _end_of_window(self, start: int, limit: int) -> int:
        if limit - start <= self._size:
            return limit
        return start - start % self._size + self._size

    def _pull(self, start: int, end: int, wait_s: int) -> Pulled | OutOfRange:
        most = end - start, self._options.pull_max_bytes
        tags = self._options.filter_tags
        pull = Pull(self._wanted.topic, self._wanted.queue, start, end, *most, tags)
        return self._client.pull(pull, wait_s)


def _in_blocks(size: int) -> int:
    """`size`, or less for whole blocks."""
    return size - size % BLOCK_RECORDS or size
