"""What a request is for is known by one with the same head, while what that was found by holds."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.api.aims.places import Metadata, Places
from app.api.gateway import _known_aim
from app.api.http.request_context import HEAD, HeadMemory, KnownAim
from app.domain.limits import Limits


@pytest.fixture
def places() -> Places:
    metadata = SimpleNamespace(snapshot=object())
    return Places(cast("Metadata", metadata), lambda _: True, Limits())


def known(places: Places, aim: KnownAim | None, namespace: str = "") -> KnownAim | None:
    memory = HeadMemory()
    memory.aim = aim
    exchange = SimpleNamespace(scope={HEAD: memory}, namespace=namespace)
    return _known_aim(cast("Any", SimpleNamespace(places=places)), cast("Any", exchange))


@pytest.mark.parametrize("shard", [None, "b"])
def test_it_holds_while_nothing_new_is_known(places: Places, shard: str | None) -> None:
    aim = KnownAim(places.stamp, "", shard)
    assert known(places, aim) is aim
    assert known(places, aim) is aim
    cast("Any", places.metadata).snapshot = object()
    assert known(places, aim) is None


def test_it_is_of_the_namespace_that_its_caller_was_bound_to(places: Places) -> None:
    """Keys have a version of their own: a caller may be bound to another one at any time."""
    aim = KnownAim(places.stamp, "a", "b")
    assert known(places, aim, "a") is aim
    assert known(places, aim, "b") is None
    assert known(places, aim) is None


def test_a_head_that_was_not_aimed_is_for_nothing_known(places: Places) -> None:
    assert known(places, None) is None
    exchange = SimpleNamespace(scope={}, namespace="")
    relay = SimpleNamespace(places=places)
    assert _known_aim(cast("Any", relay), cast("Any", exchange)) is None
