"""Events of nodes and shards as sentences."""

from typing import Any, get_args

import pytest

from app.cluster.metadata.nodes.cluster_events import Kind
from app.web.operating.cluster_history import happened
from app.web.rendering.languages import packaged_translations


def plain(text: str) -> str:
    return text


def event(kind: str, detail: str = "", node: str | None = "n1", **more: Any) -> dict[str, Any]:
    rest = {"seq": 1, "at_ms": 0, "shard": "orders", "epoch": 3, **more}
    return {"kind": kind, "detail": detail, "node_id": node, **rest}


def test_who_came_and_who_left_is_told() -> None:
    told = happened(
        [
            event("in_sync_changed", "in sync: a, b, c"),
            event("in_sync_changed", "in sync: x", shard="another"),
            event("in_sync_changed", "in sync: a, b"),
            event("shard_elected", "in sync: a, b, c"),
        ],
        plain,
    )
    assert [each.text for each in told] == [
        "In sync now: c. Sends wait for: a, b, c.",
        "Sends wait for: x.",
        "No longer in sync: c. Sends wait for: a, b.",
        "The node n1 was elected and leads the shard.",
    ]
    assert {each.detail for each in told} == {""}


def test_who_asked_for_a_hand_over_is_told() -> None:
    asked = "in sync: a, b; asked for by "
    told = happened(
        [
            event("shard_handed_over", f"{asked}ada; x, y"),
            event("shard_handed_over", f"{asked}somebody without a key"),
            event("shard_handed_over", "in sync: a, b"),
        ],
        packaged_translations()["zh"].gettext,
    )
    assert [each.text for each in told] == [
        "应 ada; x, y 的要求，分片移交给 n1。",  # noqa: RUF001
        "应 未使用密钥者 的要求，分片移交给 n1。",  # noqa: RUF001
        "分片移交给 n1。",
    ]


@pytest.mark.parametrize("kind", get_args(Kind))
@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_kind_has_a_sentence(kind: str, language: str) -> None:
    gettext = packaged_translations()[language].gettext
    (told,) = happened([event(kind, "for 3 replicas", shard=None, epoch=None)], gettext)
    assert told.text != kind
    assert "%(" not in told.text
    assert told.text.isascii() == (language == "en")


def test_a_kind_of_a_newer_node_is_shown_as_it_is() -> None:
    (told,) = happened([event("of_tomorrow", "in sync: 100%")], plain)
    assert (told.text, told.detail) == ("of_tomorrow", "in sync: 100%")


def test_what_a_node_says_of_itself_is_not_hidden() -> None:
    told = happened(
        [event("node_registered", "http://a:1, version 0.1.0"), event("replica_joined", "b:2")],
        plain,
    )
    assert [(each.text, each.detail) for each in told] == [
        ("The node n1 started, with version 0.1.0.", "http://a:1"),
        ("The node n1 joined with a replica.", "b:2"),
    ]
