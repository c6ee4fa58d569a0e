"""A body that cannot be read is aimed at the node that was asked, whose handler says why."""

from types import SimpleNamespace
from typing import Final, cast

import pytest

from app.api.aims.aim import HERE, Aim
from app.api.aims.of_names import POSITIONS, RECEIPTS
from app.api.aims.of_sends import A_MESSAGE
from app.api.aims.places import Metadata, Places
from app.api.http.request_context import RequestContext
from app.domain.limits import Limits

DEEP: Final = 100_000
NESTED: Final = b'{"acks":' + b"[" * 600 + b"]" * 600 + b"}"
"""As deep as is decoded, and too deep to be walked through."""
BODIES: Final = [
    b"",
    b"{",
    b"\xff",
    b'"text"',
    NESTED,
    b"[" * DEEP + b"]" * DEEP,
    b'{"more":' * DEEP + b"1" + b"}" * DEEP,
]
EXCHANGE: Final = cast("RequestContext", None)
PLACES: Final = Places(
    cast("Metadata", SimpleNamespace(snapshot=SimpleNamespace(topics={}, shards={}))),
    lambda _: True,
    Limits(batch_messages_max=100),
)


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
@pytest.mark.parametrize("aim", [RECEIPTS, POSITIONS], ids=["handles", "positions"])
def test_it_is_aimed_here(aim: Aim, body: bytes) -> None:
    assert aim.body is not None
    assert aim.body(EXCHANGE, ("billing", "orders"), PLACES, body) is HERE


@pytest.mark.parametrize("body", [body for body in BODIES if body != NESTED])
def test_a_message_is_aimed_here(body: bytes) -> None:
    assert A_MESSAGE.body is not None
    assert A_MESSAGE.body(EXCHANGE, ("orders",), PLACES, body) is HERE
