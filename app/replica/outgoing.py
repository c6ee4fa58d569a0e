"""The blocks that a leader has still to send, for each follower: read when there is room for them.

A follower that is far behind is offered all of the log at once; in memory is only what its
connection takes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from app.cluster.replication.events import SendBlocks
from app.cluster.replication.messages import Blocks
from app.cluster.replication.terms import Term, TermStart
from app.replica.ports import Peers
from app.store.replica.block_reader import BlockReader
from app.store.replica.block_walk import BlockRange


@dataclass(slots=True)
class _Offer:
    blocks: SendBlocks
    term: Term


class Outgoing:
    """Of one replica. On the driver's thread."""

    def __init__(
        self,
        peers: Peers,
        reader: BlockReader,
        history: Callable[[], tuple[TermStart, ...]],
        check: Callable[[BlockRange], object],
    ) -> None:
        """`check` raises `BlocksRefused` for what is damaged. What is confirmed was written some
        time ago, and is checked; what was just written is not."""
        self._peers = peers
        self._reader = reader
        self._history = history
        self._check = check
        self._offers: dict[str, _Offer] = {}
        self._last: BlockRange | None = None
        """What was read last, as long as this replica leads: nothing of it changes meanwhile."""

    def offer(self, blocks: SendBlocks, term: Term) -> None:
        """Send these behind what the node was offered on the same connection."""
        before = self._offers.get(blocks.node)
        if before is not None and before.blocks.session == blocks.session:
            blocks = replace(blocks, start=before.blocks.start)
        self._offers[blocks.node] = _Offer(blocks, term)

    def forget(self, node: str) -> None:
        """Its connection is another one, or none."""
        self._offers.pop(node, None)

    def forget_all(self) -> None:
        """The leadership is over."""
        self._offers.clear()
        self._last = None

    def next_start(self, node: str) -> int | None:
        """Where the node goes on; None: it has been sent all."""
        offer = self._offers.get(node)
        return None if offer is None else offer.blocks.start

    @property
    def nodes(self) -> list[str]:
        """Those that have not been sent all."""
        return list(self._offers)

    def send(self, node: str) -> None:
        """Send as much as there is room for. Raises `BlocksUnreadable`, `BlocksRefused` for what is
        damaged, or `OSError`: then what is left can be sent later."""
        while node in self._offers and self._peers.has_room(node):
            offer = self._offers[node]
            wanted = offer.blocks
            blocks = self._read(wanted)
            starts = tuple(
                each for each in self._history() if blocks.start <= each.start < blocks.end
            )
            message = Blocks(
                wanted.session,
                offer.term,
                blocks.start,
                blocks.end,
                starts,
                wanted.sync_to,
                wanted.high_watermark,
            )
            if blocks.end < wanted.end:
                offer.blocks = replace(wanted, start=blocks.end)
            else:
                del self._offers[node]
            self._peers.send_blocks(node, message, blocks.data)

    def _read(self, wanted: SendBlocks) -> BlockRange:
        """The next blocks; those that another follower was sent last are not read again."""
        is_confirmed = wanted.start < wanted.high_watermark
        last, self._last = self._last, None
        if last is not None and last.start == wanted.start and last.end <= wanted.end:
            blocks = last
        else:
            read = self._reader.read if is_confirmed else self._reader.read_new
            blocks = read(wanted.start, wanted.end)
        if is_confirmed:
            self._check(blocks)
        self._last = blocks
        return blocks
