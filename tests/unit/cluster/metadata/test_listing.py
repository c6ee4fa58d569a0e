"""Pages by name: nothing twice, nothing lost, whatever happens between two pages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cluster.metadata.listing import Page, Wanted, page_of
from app.domain.errors import IllegalPage

NAMES = st.text(alphabet="ab+_-Z9", min_size=1, max_size=4)


def page(names: set[str], prefix: str = "", size: int = 100, token: str | None = None) -> Page[str]:
    by_name = {name: name for name in names}
    return page_of(by_name, Wanted("", prefix), size, token, 100)


@given(st.sets(NAMES), st.text(alphabet="a+", max_size=1), st.integers(1, 5))
def test_pages_together_are_the_sorted_listing(names: set[str], prefix: str, size: int) -> None:
    seen: list[str] = []
    token = None
    while True:
        got = page(names, prefix, size, token)
        assert len(got.items) <= size
        seen.extend(got.items)
        token = got.next_page_token
        if token is None:
            break
        assert got.items
    assert seen == sorted(name for name in names if name.startswith(prefix))


def test_deleting_the_item_that_the_token_names_loses_nothing() -> None:
    first = page({"a", "b", "c"}, size=2)
    assert first.items == ("a", "b")
    assert page({"a", "c"}, size=2, token=first.next_page_token).items == ("c",)


@pytest.mark.parametrize("size", [0, -1, 101])
def test_page_size_has_bounds(size: int) -> None:
    with pytest.raises(IllegalPage, match="page_size"):
        page({"a"}, size=size)


@pytest.mark.parametrize("token", ["b", "orders", "%%%", "Mjph", "ä", "/w=="])
def test_foreign_tokens_are_refused(token: str) -> None:
    with pytest.raises(IllegalPage, match="page token"):
        page({"a"}, token=token)
