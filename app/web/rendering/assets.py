"""Static files: read once, named by the hash of their content, so that browsers may keep them.

`curlew.css` is served as `static/curlew.<hash>.css`. A page that names it therefore always gets the
content it was written for, also during an upgrade behind a proxy. Those under `vendor` were written
by others, and are listed with their origin in `vendor/manifest.toml`.
"""

import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

MEDIA_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
KEPT_FOR_EVER: Final = "private, max-age=31536000, immutable"


class Asset(NamedTuple):
    """A static file in memory."""

    content: bytes
    media_type: str


class Assets:
    """All static files of the package. Immutable."""

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        self._served: dict[str, Asset] = {}
        self._hashed_names: dict[str, str] = {}
        for name, content in contents.items():
            stem, _, suffix = name.rpartition(".")
            hashed = f"{stem}.{hashlib.sha256(content).hexdigest()[:12]}.{suffix}"
            self._hashed_names[name] = hashed
            self._served[hashed] = Asset(content, MEDIA_TYPES[suffix])

    def path(self, name: str) -> str:
        """Where the file named `name` is served, relative to the pages' root."""
        return f"static/{self._hashed_names[name]}"

    def find(self, hashed_name: str) -> Asset | None:
        return self._served.get(hashed_name)


@cache
def packaged_assets() -> Assets:
    """The files of this package. Blocks when it is called first, at the start."""
    folder = files("app.web") / "static"
    return Assets({entry.name: entry.read_bytes() for entry in _served(folder)})


def _served(folder: Traversable) -> Iterator[Traversable]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _served(entry)
        elif entry.name.rpartition(".")[2] in MEDIA_TYPES:
            yield entry
