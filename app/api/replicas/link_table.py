"""The connections that other replicas have made to this node: one for each, the newest.

Event loop only.
"""

from collections.abc import Sequence

from typing_extensions import override

from app.api.replicas.link import LinkOwner, ReplicaLink
from app.cluster.replication.messages import PeerMessage


class LinkTable(LinkOwner):
    """Passes on what the newest link of each node says to `owner`."""

    def __init__(self, owner: LinkOwner, silence_s: float) -> None:
        self._owner = owner
        self._silence_s = silence_s
        self._links: dict[str, ReplicaLink] = {}
        self._closed: str | None = None

    def accept(self, node: str, session: int) -> ReplicaLink:
        """A link for a connection that `node` has made; where it has a newer one, it ends at once,
        and where it has an older one, that does."""
        link = ReplicaLink(self, node, session, self._silence_s)
        before = self._links.get(node)
        if before is None or before.session < session:
            self._links[node] = link
            if before is not None:
                before.close(f"{node} has made a newer connection")
        return link

    def made(self, link: ReplicaLink) -> None:
        """The link has its transport now."""
        if self._closed is not None:
            link.close(self._closed)
        elif self._links.get(link.node) is not link:
            link.close(f"{link.node} has made a newer connection")

    def links(self) -> Sequence[ReplicaLink]:
        """All that are open."""
        return list(self._links.values())

    def close(self, reason: str) -> None:
        """End them all, and each that comes yet."""
        self._closed = reason
        for link in self.links():
            link.close(reason)

    @override
    def heard(self, link: ReplicaLink, message: PeerMessage, blocks: list[memoryview]) -> None:
        self._owner.heard(link, message, blocks)

    @override
    def has_room(self, link: ReplicaLink) -> None:
        self._owner.has_room(link)

    @override
    def is_over(self, link: ReplicaLink, reason: str) -> None:
        """Nobody is told of a link that never counted, nor of one that another has replaced: the
        newer one's first message is what counts then."""
        if self._links.get(link.node) is link:
            del self._links[link.node]
            self._owner.is_over(link, reason)
