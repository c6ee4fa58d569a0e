"""Pages of which a part cannot be answered now: they show the rest, and say what is missing."""

import asyncio
from typing import Any, Final

import httpx
import pytest

from app.web.serving.api import Answer, Api, Refused
from tests.support.nodes.closed import ClosedNode, closed_node

BASE: Final = "http://localhost:8710"
AWAY: Final = {"code": "SHARD_UNAVAILABLE", "detail": "the shard is <away>", "hint": "wait"}

CASES: Final = (
    ("/ui/", "/v1/stats", "Nodes"),
    ("/ui/", "/v1/nodes", "Messages"),
    ("/ui/topics/alpha-in", "/v1/topics/alpha-in/stats", "Settings"),
    ("/ui/topics/alpha-in/groups", "/v1/groups", "Settings"),
    ("/ui/groups", "/v1/groups?page_size=25&show=lag", "alpha-g"),
    ("/ui/groups/alpha-g", "/v1/groups/alpha-g/lag", "Handed out and acked"),
    ("/ui/groups/alpha-g", "/v1/groups/alpha-g/stats", "Waiting"),
    ("/ui/groups/alpha-g", "/v1/groups/alpha-g/parked", "Waiting"),
    ("/ui/groups/alpha-g/settings", "/v1/groups/alpha-g/lag", "Pause the group"),
    ("/ui/search?q=alpha", "/v1/groups?prefix=alpha", "alpha-in"),
    ("/ui/search?q=alpha", "/v1/topics/alpha-in/messages", "alpha-g"),
    ("/ui/nodes", "/v1/cluster/events", "The node that answers"),
    ("/ui/nodes", "/v1/cluster?", "What happened"),
)
"""Page, beginning of what cannot be answered, and what stands on the page all the same."""


@pytest.mark.parametrize(("path", "away", "shown"), CASES)
def test_the_rest_of_a_page_is_shown_with_why_a_part_is_not(
    monkeypatch: pytest.MonkeyPatch, path: str, away: str, shown: str
) -> None:
    answer = asked_without(monkeypatch, path, away)
    assert answer.status_code == 200
    assert "A part of this page cannot be shown now." in answer.text
    assert "the shard is &lt;away&gt;" in answer.text
    assert shown in answer.text


def test_messages_that_cannot_be_read_leave_the_form(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = asked_without(
        monkeypatch, "/ui/topics/alpha-in/messages?tag=paid", "/v1/topics/alpha-in/messages"
    )
    assert answer.status_code == 503
    assert "the shard is &lt;away&gt;" in answer.text
    assert 'name="tag" value="paid"' in answer.text


@pytest.mark.parametrize(
    ("path", "away"),
    [
        ("/ui/search?q=alpha", "/v1/groups?prefix=alpha"),
        ("/ui/groups/alpha-g/settings", "/v1/groups/alpha-g/lag"),
        ("/ui/topics/alpha-in/messages/{id}", "/v1/groups"),
    ],
)
def test_what_is_missing_is_said_above_the_rest(
    monkeypatch: pytest.MonkeyPatch, path: str, away: str
) -> None:
    text = asked_without(monkeypatch, path, away).text
    assert text.count("cannot be shown now") == 1
    body = text.index('<div class="heading">')
    banner, first = text.index("cannot be shown now"), min(_places(text, "<form", body))
    assert body < banner < first


def _places(text: str, what: str, after: int) -> list[int]:
    """Where it stands in the content, forms and sections alike."""
    return [text.index(each, after) for each in (what, "<section") if each in text[after:]]


NOT_SAID: Final = (
    ("/ui/search?q=zeta", "/v1/topics/", "No message has this id or key", "0 topics searched"),
    ("/ui/search?q=zeta&topic=alpha-in", "/v1/topics/", "name the topic", "0 topics searched"),
    ("/ui/search?q=zeta", "/v1/topics?prefix", "No name begins so", "not known now"),
    ("/ui/search?q=zeta", "/v1/groups?prefix", "No name begins so", "not known now"),
    ("/ui/topics/alpha-in/messages/{id}", "/v1/groups?", "No group reads", "What became of it"),
    (
        "/ui/topics/alpha-in/messages/{id}?group=alpha-g",
        "/v1/topics/alpha-in/messages/{id}/delivery",
        "There is no group",
        "What became of it",
    ),
    (
        "/ui/topics/alpha-in/messages/{id}",
        "/v1/topics/alpha-in/messages/{id}/delivery",
        "No group reads",
        "What became of it",
    ),
)
"""Page, beginning of what is away, what is not to be said of it, and what is."""


@pytest.mark.parametrize(("path", "away", "untrue", "said"), NOT_SAID)
def test_what_is_away_is_not_said_not_to_be(
    monkeypatch: pytest.MonkeyPatch, path: str, away: str, untrue: str, said: str
) -> None:
    text = asked_without(monkeypatch, path, away).text
    assert text.count("cannot be shown now") == 1
    assert text.count(untrue) == (1 if "prefix" in away else 0), "that of the other kind"
    assert said in text


def test_a_group_that_there_is_not_is_said_not_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/ui/topics/alpha-in/messages/{id}?group=nobody"
    text = asked_without(monkeypatch, path, "/v1/topics/alpha-in/messages/{id}/trace").text
    assert "There is no group nobody" in text
    assert text.count("cannot be shown now") == 1


@pytest.mark.parametrize(
    ("path", "away"),
    [
        ("/ui/search?q=zeta", "/v1/topics/"),
        ("/ui/groups", "/v1/groups/"),
        ("/ui/topics/alpha-in/groups", "/v1/groups/"),
        ("/ui/topics/alpha-in", "/v1/topics/alpha-in/queues/"),
        ("/ui/topics/alpha-in/messages/{id}", "/v1/topics/alpha-in/messages/{id}/delivery"),
    ],
)
def test_after_what_is_away_a_page_asks_for_no_more_of_it(
    monkeypatch: pytest.MonkeyPatch, path: str, away: str
) -> None:
    """Each may take as long as the first one to say that it cannot be had."""
    asked: list[str] = []
    answer = asked_without(monkeypatch, path, away, asked)
    assert answer.status_code == 200
    assert answer.text.count("cannot be shown now") == 1
    assert len(asked) == 1


def test_a_group_whose_figures_are_hidden_is_not_one_that_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the groups alpha-g, beta-g and more: the first is hidden, the second away, none asked."""
    ask = Api.ask

    async def hidden(api: Api, method: str, where: str, **more: Any) -> Answer:
        if where == "/v1/groups/alpha-g/lag":
            raise Refused(403, {"code": "ACCESS_DENIED"})
        return await ask(api, method, where, **more)

    monkeypatch.setattr(Api, "ask", hidden)
    text = asked_without(monkeypatch, "/ui/groups", "/v1/groups/beta-g/lag").text
    assert text.count("you may not see its figures") == 1
    assert text.count("not known now") >= 1


def test_the_fields_of_a_message_have_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    text = asked_without(monkeypatch, "/ui/topics/alpha-in/messages/{id}", "/nothing").text
    for label in ("Content type", "Sharding key", "Unique id"):
        assert f"<dt>{label}</dt>" in text
    assert ">content_type<" not in text


def asked_without(
    monkeypatch: pytest.MonkeyPatch, path: str, away: str, asked: list[str] | None = None
) -> httpx.Response:
    """A page of a node that cannot answer for what begins so; `asked` gets what was asked of that.
    `{id}` is a message. The node says that it is one of a cluster."""
    ask = Api.ask
    known: list[str] = []

    async def refused(api: Api, method: str, where: str, **more: Any) -> Answer:
        gone = away.format(id=known[0])
        if where.startswith(gone) or f"{where}?" == gone:
            if asked is not None:
                asked.append(where)
            raise Refused(503, dict(AWAY))
        if where == "/v1/nodes" and path == "/ui/groups":
            return Answer(200, {}, b'{"nodes":[{"shard":"a"},{"shard":"b"}]}')
        return await ask(api, method, where, **more)

    async def use(node: ClosedNode) -> httpx.Response:
        transport = httpx.ASGITransport(node.app)
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
            headers = {"content-type": "text/plain", "mq-sharding-key": "k", "mq-unique-id": "u"}
            sent = "/v1/topics/alpha-in/messages"
            for _ in range(2):
                answer = await client.post(sent, content=b"x", headers=headers)
                known.append(answer.json()["message_id"])
            for group in ("alpha-g", "alpha-h"):
                await client.post(f"/v1/topics/alpha-in/groups/{group}/messages:receive")
            monkeypatch.setattr(Api, "ask", refused)
            return await client.get(path.format(id=known[0]))

    async def run() -> httpx.Response:
        async with closed_node(is_closed=False, with_pages=True) as node:
            return await use(node)

    return asyncio.run(run())
