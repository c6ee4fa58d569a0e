"""A queue that a member owns: what it has read of it, and how far it may commit. Pure.

All below the commit offset is done. A message is done when its handler says so, or when the node
has taken it back into the group's retries. One event loop; a handler's thread only says that a
message has begun (`begins`).
"""

from collections import deque
from collections.abc import Collection, Iterable, Sequence

from curlew_client.assigned.records import DONE, LEAVING, WAITING, Polled, QueueName


class OwnedQueue:
    """Of one member, from one `since_generation` on."""

    __slots__ = (
        *("_held", "at_work", "bytes", "committed", "count", "is_dropped", "is_leaving"),
        *("is_locked", "line", "name", "next_offset", "reads_any", "since_generation"),
    )

    def __init__(self, name: QueueName, since_generation: int, offset: int) -> None:
        self.name = name
        self.since_generation = since_generation
        self.next_offset = offset
        """Where to read on."""
        self.reads_any = False
        """It is far behind, and the node has suggested to read from another replica."""
        self.committed = offset
        """What the node has been told."""
        self.count = 0
        """Messages that are held."""
        self.bytes = 0
        self.is_leaving = False
        """The queue goes to another member: nothing of it begins any more."""
        self.is_dropped = False
        """It is somebody else's, or begins anew: what becomes of its messages counts no more."""
        self.is_locked = False
        """In order: the node keeps others from reading it."""
        self.line: deque[Polled] = deque()
        """In order: what waits for its turn."""
        self.at_work: list[Polled] = []
        """In order: what a handler has, or had and will have again."""
        self._held: deque[Polled] = deque()

    # --- reading

    def suggested(self, read: str | None, is_up_to_date: str | None) -> None:
        """What an answer says of where to read on: at any replica as long as it is far behind."""
        if read == "any":
            self.reads_any = True
        elif is_up_to_date == "true":
            self.reads_any = False

    def add(self, messages: Sequence[Polled]) -> None:
        """Messages were read, in order."""
        size = 0
        for message in messages:
            message.owner = self
            size += len(message.body)
        self._held.extend(messages)
        self.count += len(messages)
        self.bytes += size

    def forget(self, messages: Sequence[Polled]) -> bool:
        """Let the next read give messages again that nobody has seen. False, and nothing is done,
        when others were read behind them.

        `messages` are of this queue, in order, with none left out.
        """
        held = self._held
        if len(held) < len(messages) or held[-len(messages)] is not messages[0]:
            return False
        for message in messages:
            held.pop()
            self.bytes -= len(message.body)
        self.count -= len(messages)
        self.next_offset = messages[0].offset
        return True

    @property
    def span(self) -> int:
        """How far the oldest that is not done is behind what is read next."""
        return self.next_offset - self._held[0].offset if self._held else 0

    # --- what becomes of messages

    def begins(self, message: Polled) -> bool:
        """In a handler's thread: whether it may begin."""
        message.has_begun = True
        if self.is_leaving or self.is_dropped:
            message.has_begun = False
            return False
        return True

    def done(self, message: Polled) -> None:
        """A message is done."""
        all_done((message,))

    def forget_done(self) -> None:
        """Hold no more what is done and has nothing before it that is not."""
        held = self._held
        while held and held[0].state == DONE:
            held.popleft()

    def again(self, message: Polled) -> None:
        """A message will go to a handler again, which counts as another try."""
        message.state = WAITING
        message.has_begun = message.is_settled = False
        message.tries += 1

    @property
    def busy(self) -> bool:
        """Whether a handler has any of its messages."""
        return any(message.has_begun for message in self._held)

    def overdue(self, now_s: float) -> list[Polled]:
        """Messages that handlers have had for too long."""
        return [
            message
            for message in self._held
            if message.has_begun and not message.is_settled and message.until_s <= now_s
        ]

    # --- committing

    def commit_offset(self, handed_back: Collection[int] = ()) -> int:
        """All below it is done, when the messages at these offsets are taken back."""
        for message in self._held:
            is_passed = message.state == LEAVING and message.offset in handed_back
            if message.state != DONE and not is_passed:
                return message.offset
        return self.next_offset


def all_done(messages: Iterable[Polled]) -> None:
    """Messages of whatever queues are done."""
    queue: OwnedQueue | None = None
    queues = []
    for message in messages:
        if message.state == DONE:
            continue
        message.state = DONE
        message.is_settled = True
        message.has_begun = False
        if message.owner is not queue:
            queue = message.owner
            assert queue is not None
            queues.append(queue)
        queue.count -= 1
        queue.bytes -= len(message.body)
    for queue in queues:
        queue.forget_done()
