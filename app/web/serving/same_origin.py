"""Whether a request that changes something was made by a page of this node. Pure.

Browsers say so in `Sec-Fetch-Site`; over plain HTTP to another machine they say nothing, and older
ones never do: then `Origin` has to name the host that was asked, or the one that a proxy was asked
for. A page of somebody else can set none of these headers. A program that is no browser sends none
of them, and may do what its credentials allow.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

_OURS: Final = frozenset({"same-origin", "none"})
_HOSTS: Final = ("host", "x-forwarded-host")


def is_from_elsewhere(headers: Mapping[str, str]) -> bool:
    """Whether a link on a page of somebody else was followed: a browser then shows no cookie."""
    site, mode = headers.get("sec-fetch-site"), headers.get("sec-fetch-mode")
    return site not in {None, *_OURS} and mode == "navigate"


def is_ours(headers: Mapping[str, str]) -> bool:
    """`headers` have lower-case names."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in _OURS
    origin = headers.get("origin")
    if origin is None:
        return True
    host = urlsplit(origin).netloc
    return bool(host) and host in {headers.get(name) for name in _HOSTS}
