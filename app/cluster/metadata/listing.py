"""Pages of a listing by name. Pure.

A page token names the last item of its page, so a page is right whatever was added or deleted in
between. It is opaque to clients: base64 of the name, marked with a version.
"""

import base64
import binascii
import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from app.domain.errors import IllegalPage
from app.domain.handles.page_sizes import check_page_size
from app.domain.names import NAMESPACE_SEPARATOR, stored_name

Item = TypeVar("Item")
Item_co = TypeVar("Item_co", covariant=True)

_FORMAT_MARK: Final = "1:"


@dataclass(frozen=True, slots=True)
class Page(Generic[Item_co]):
    """Items in the order of their names; `next_page_token` is None on the last page."""

    items: tuple[Item_co, ...]
    next_page_token: str | None


class Wanted(NamedTuple):
    """Which names: those of a namespace that begin with `prefix`."""

    namespace: str
    prefix: str

    @property
    def stored_prefix(self) -> str:
        return stored_name(self.namespace, self.prefix)


def page_of(
    by_name: Mapping[str, Item],
    wanted: Wanted,
    page_size: int,
    page_token: str | None,
    page_size_max: int,
    visible: Callable[[str], bool] = lambda _name: True,
) -> Page[Item]:
    """The items that are wanted and `visible`, from behind `page_token` on."""
    check_page_size(page_size, page_size_max)
    after = _name_in(page_token) if page_token else ""
    prefix, is_default = wanted.stored_prefix, not wanted.namespace
    found = (
        name
        for name in by_name
        if name > after
        and name.startswith(prefix)
        and not (is_default and NAMESPACE_SEPARATOR in name)
        and visible(name)
    )
    names = heapq.nsmallest(page_size + 1, found)
    shown = names[:page_size]
    more = len(names) > page_size
    return Page(tuple(by_name[name] for name in shown), _token(shown[-1]) if more else None)


def _token(name: str) -> str:
    return base64.urlsafe_b64encode((_FORMAT_MARK + name).encode()).decode()


def _name_in(token: str) -> str:
    try:
        text = base64.b64decode(token.encode("ascii"), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError) as error:
        raise _bad_token() from error
    if not text.startswith(_FORMAT_MARK):
        raise _bad_token()
    return text.removeprefix(_FORMAT_MARK)


def _bad_token() -> IllegalPage:
    return IllegalPage(
        "the page token was not issued by this service",
        hint="begin again without page_token",
    )
