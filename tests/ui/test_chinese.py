"""Every page in Chinese: what is left in English are names, values and what clients wrote."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Final

import httpx
import pytest
from typing_extensions import override

from tests.support.clients.ui_pages import EMPTY_PAGES, HOSTILE, PAGES, Filled

pytestmark = pytest.mark.browser  # the nodes are those of the browser tests

SENTENCE: Final = re.compile(r"[A-Za-z']{2,}(?: [a-z']{2,}){2,}")
"""Three words of English."""
SHOWN: Final = frozenset({"placeholder", "aria-label", "title", "alt", "data-copied"})
AS_THEY_ARE: Final = frozenset({"code", "pre", "kbd", "textarea", "script", "style"})
VOID: Final = frozenset({"br", "hr", "img", "input", "link", "meta"})
OF_THE_FILTER: Final = (
    "a property or a value is expected, not the end (position 9)",
    "for instance sql: region = 'eu' AND amount > 100",
)
"""Where a filter does not parse: the title above it is in Chinese."""


class Texts(HTMLParser):
    """What a page shows, but for what is shown as it was written."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._within: list[str] = []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self._within.append(tag)
        self.found += [value for name, value in attrs if name in SHOWN and value]

    @override
    def handle_endtag(self, tag: str) -> None:
        while self._within and self._within.pop() != tag:
            pass

    @override
    def handle_data(self, data: str) -> None:
        if AS_THEY_ARE.isdisjoint(self._within):
            self.found.append(data.strip())


def english_in(text: str) -> Iterator[str]:
    texts = Texts()
    texts.feed(text)
    for each in texts.found:
        left = each.replace(HOSTILE, "")
        if each not in OF_THE_FILTER and SENTENCE.search(left):
            yield each


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_no_english_sentence(filled: Filled, name: str) -> None:
    text = httpx.get(filled.page(PAGES[name]), cookies={"curlew_language": "zh"}, timeout=60).text
    assert '<html lang="zh"' in text
    assert list(english_in(text)) == []


@pytest.mark.parametrize("name", EMPTY_PAGES)
def test_an_empty_page_has_no_english_sentence(bare: str, name: str) -> None:
    where = f"{bare}/ui/{EMPTY_PAGES[name]}"
    assert list(english_in(httpx.get(where, cookies={"curlew_language": "zh"}).text)) == []


def test_what_the_api_refuses_is_named_in_chinese(bare: str) -> None:
    text = httpx.get(f"{bare}/ui/topics/never", cookies={"curlew_language": "zh"}).text
    assert "主题不存在" in text


def test_english_would_be_noticed(filled: Filled) -> None:
    text = httpx.get(filled.page("topics")).text
    assert list(english_in(text)) != []
