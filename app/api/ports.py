"""What HTTP needs of the cluster's metadata beside what the broker needs of it: listings.

Declared by its user, because tests have metadata in memory; the real one fits structurally.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

from app.broker import ports as broker_ports
from app.broker.ports import Group, Topic

_Item_co = TypeVar("_Item_co", covariant=True)


class SettingInUse(NamedTuple):
    """A setting as the node runs with it. Values as JSON has them; secrets are left out of them."""

    name: str
    value: str | int | bool | list[str] | None
    default: str | int | bool | list[str] | None
    source: str


class Page(Protocol[_Item_co]):
    """One page of a listing."""

    @property
    def items(self) -> Sequence[_Item_co]: ...
    @property
    def next_page_token(self) -> str | None: ...


class Node(Protocol):
    """A node as it registered itself."""

    @property
    def node_id(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def store_id(self) -> bytes: ...
    @property
    def started_ms(self) -> int: ...
    @property
    def seen_ms(self) -> int: ...


class Metadata(broker_ports.Metadata, Protocol):
    """The cluster's metadata: what the broker needs of it, and listings."""

    def list_topics(
        self, *, prefix: str = "", page_size: int = 100, page_token: str | None = None
    ) -> Page[Topic]: ...

    def list_groups(
        self, *, prefix: str = "", page_size: int = 100, page_token: str | None = None
    ) -> Page[Group]: ...

    async def list_nodes(self) -> Sequence[Node]: ...
