"""The pages over ASGI, without a socket: headers, addresses, escaping, translations."""

import asyncio
import re
from gettext import NullTranslations
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from typing_extensions import override

from app.web import build_web
from app.web.headers import CONTENT_SECURITY_POLICY
from app.web.views import TOPICS_PER_PAGE
from tests.support.clients.web_fakes import HOSTILE_NAME, FakeNode, busy_node
from tests.support.stores.clock import FakeClock

TEMPLATES = Path(__file__).parents[3] / "app" / "web" / "templates"


def fetch(
    path: str,
    node: FakeNode | None = None,
    *,
    prefix: str = "",
    translations: NullTranslations | None = None,
) -> httpx.Response:
    shown = node or busy_node()
    web = build_web(shown, shown, FakeClock(), translations)
    app = Starlette(routes=[Mount("/ui", app=web)])

    async def get() -> httpx.Response:
        transport = httpx.ASGITransport(app, root_path=prefix)
        async with httpx.AsyncClient(transport=transport, base_url="http://node:8710") as client:
            return await client.get(prefix + path)

    return asyncio.run(get())


def links(text: str) -> list[str]:
    return re.findall(r'(?:href|src|action)="([^"]*)"', text)


@pytest.mark.parametrize("path", ["/ui/", "/ui/missing", "/ui/static/curlew.000000000000.css"])
def test_every_answer_carries_the_security_headers(path: str) -> None:
    headers = fetch(path).headers
    assert headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"


def test_a_missing_page_is_a_page() -> None:
    answer = fetch("/ui/missing")
    assert answer.status_code == 404
    assert "<title>404 Not Found · Curlew</title>" in answer.text


def test_pages_only_read() -> None:
    web = build_web(node := busy_node(), node, FakeClock())

    async def post() -> httpx.Response:
        transport = httpx.ASGITransport(web)
        async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
            return await client.post("/")

    answer = asyncio.run(post())
    assert answer.status_code == 405
    assert "GET" in answer.headers["allow"]


def test_static_files_are_named_by_content_and_kept() -> None:
    (stylesheet,) = re.findall(r'rel="stylesheet" href="([^"]+)"', fetch("/ui/").text)
    answer = fetch(stylesheet)
    assert answer.headers["content-type"] == "text/css; charset=utf-8"
    assert answer.headers["cache-control"] == "private, max-age=31536000, immutable"
    assert b"light-dark(" in answer.content


def test_addresses_carry_the_prefix_of_a_proxy() -> None:
    node = FakeNode()
    for number in range(TOPICS_PER_PAGE + 1):
        node.add(f"topic-{number:03}", 1)
    found = links(fetch("/ui/?after=topic-000", node, prefix="/mq").text)
    assert len(found) > TOPICS_PER_PAGE
    assert [
        link for link in found if not link.startswith(("/mq/ui/", "/mq/v1/", "/mq/openapi"))
    ] == ["#content"]


def test_the_page_behind_a_prefix_is_found() -> None:
    found = links(fetch("/ui/", prefix="/mq").text)
    (stylesheet,) = [link for link in found if link.endswith(".css")]
    assert fetch(stylesheet.removeprefix("/mq"), prefix="/mq").status_code == 200


def test_names_are_text_wherever_they_appear() -> None:
    text = fetch("/ui/").text
    assert HOSTILE_NAME not in text
    assert "<img src=x" not in text
    assert "&lt;img src=x onerror=" in text
    assert "{{7*7}}" in text


def test_a_query_is_text_too() -> None:
    text = fetch('/ui/?prefix="><script>alert(1)</script>').text
    assert "<script" not in text
    assert "&#34;&gt;&lt;script&gt;" in text


def test_the_empty_page_shows_how_to_fill_it() -> None:
    text = fetch("/ui/", FakeNode()).text
    assert "curl -X PUT http://node:8710/v1/topics/orders" in text
    assert "<table" not in text


def test_a_topic_without_messages_shows_how_to_send() -> None:
    text = fetch("/ui/", FakeNode().add("orders")).text
    assert "curl http://node:8710/v1/topics/orders/messages" in text


def test_the_page_links_to_the_json_behind_it() -> None:
    assert "/v1/topics?prefix=ord" in links(fetch("/ui/?prefix=ord").text)


def test_the_page_says_how_old_it_is() -> None:
    assert "<time>2023-11-14 22:13:20 UTC</time>" in fetch("/ui/").text


class Marked(NullTranslations):
    """A language in which every translated text stands in brackets."""

    @override
    def gettext(self, message: str) -> str:
        return f"⟦{message}⟧"

    @override
    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        return f"⟦{msgid1 if n == 1 else msgid2}⟧"


class BareText(HTMLParser):
    """Collects the words on a page that no translation gave."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()
        self._skipped = False

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._skipped = tag == "code"
        for name, value in attrs:
            if name in {"placeholder", "aria-label", "title", "alt"} and value:
                self.handle_data(value)

    @override
    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self.found.update(re.findall(r"[A-Za-z]{2,}", re.sub("⟦.*?⟧", "", data)))


def bare_words(text: str) -> set[str]:
    parser = BareText()
    parser.feed(text)
    return parser.found


@pytest.mark.parametrize("topics", [0, 1, 3 * TOPICS_PER_PAGE])
@pytest.mark.parametrize("query", ["", "?after=01", "?prefix=nothing-begins-so"])
def test_every_word_can_be_translated(topics: int, query: str) -> None:
    node = FakeNode()
    for number in range(topics):
        node.add(f"{number:03}", 1 + number % 2 * 100)
    answer = fetch(f"/ui/{query}", node, translations=Marked())
    data = {"normal", "sync", "Curlew", "OpenAPI", "UTC"}
    assert bare_words(answer.text) <= data


def test_a_bare_word_would_be_noticed() -> None:
    assert bare_words("<p>⟦Topics⟧ forgotten</p><input placeholder='me'>") == {"forgotten", "me"}


FORBIDDEN_IN_TEMPLATES = re.compile(
    r"\|\s*safe\b|autoescape|\bstyle=|<style|<script|\son\w+=|https?:"
)


@pytest.mark.parametrize("path", sorted(TEMPLATES.iterdir()), ids=lambda path: path.name)
def test_templates_have_nothing_inline_and_nothing_unescaped(path: Path) -> None:
    assert FORBIDDEN_IN_TEMPLATES.findall(path.read_text()) == []


@pytest.mark.parametrize(
    "offence", ["{{ name|safe }}", "<p style='x'>", "<a onclick='x'>", "<script>", "http://cdn"]
)
def test_an_offence_in_a_template_would_be_noticed(offence: str) -> None:
    assert FORBIDDEN_IN_TEMPLATES.search(offence)
