"""The other node's side of a connection."""

import asyncio

from typing_extensions import override


class Silent(asyncio.Transport):
    """To nobody."""

    @override
    def write(self, data: bytes | bytearray | memoryview) -> None:
        del data

    @override
    def abort(self) -> None:
        pass
