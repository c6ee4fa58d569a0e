"""Who may come from some addresses only: asked with each request, refused as what is not known."""

import base64
from collections.abc import Callable
from pathlib import Path

import pytest

from app.api.access.credentials import Credentials
from app.api.http.request_context import Certificate, ConnectionMemory
from app.domain.access.evaluator import Principal
from app.domain.access.keyring import Keyring, KnownKey
from app.domain.access.keys import digest_of
from app.domain.access.refusals import ADDRESS_NOT_ALLOWED, PolicyTooOld, Unauthorized, noted_of
from app.domain.positions import TimestampMs
from tests.support.nodes.closed import EVERYBODY, ClosedNode, closed_node, key_of, principal
from tests.support.stores.clock import FakeClock
from tests.unit.api.access.test_credentials import KEY, OTHER, Source
from tests.unit.runtime.secure.test_tokens import World

INSIDE, OUTSIDE = ("10.1.2.3", 1), ("192.0.2.1", 1)
BEARER, BASIC = b"Bearer " + KEY, b"Basic " + base64.b64encode(b"any:" + KEY)


def keyring(version: int, *allowed_from: str) -> Keyring:
    ann = Principal("ann", ("admin",), allowed_from=allowed_from)
    return Keyring(True, {digest_of(KEY): KnownKey("ann", "1", None)}, version, {"ann": ann})


def refusal_of(check: Callable[[], object]) -> Unauthorized:
    with pytest.raises(Unauthorized) as caught:
        check()
    return caught.value


@pytest.mark.parametrize("header", [BEARER, BASIC])
def test_a_key_counts_from_its_networks(header: bytes) -> None:
    asked = Credentials(Source(keyring(1, "10.0.0.0/8")), FakeClock())
    for client in (INSIDE, ("::ffff:10.1.2.3", 1)):
        assert asked.check(header, client=client).name == "ann"
    asked.source.used_keys.clear()
    wrong = refusal_of(lambda: asked.check(b"Bearer " + OTHER, client=OUTSIDE))
    for other in (OUTSIDE, ("::1", 1), ("unknown", 0), None):
        refused = refusal_of(lambda client=other: asked.check(header, client=client))  # type: ignore[misc]
        assert (refused.detail, refused.hint) == (wrong.detail, wrong.hint)
        assert refused.fields == wrong.fields
        assert noted_of(refused) == (ADDRESS_NOT_ALLOWED, "principal:ann")
    assert noted_of(wrong) == ("UNAUTHORIZED", "")
    assert asked.source.used_keys == set(), "such a key was not used"


def test_each_request_of_a_connection_is_asked_and_by_the_newest_networks() -> None:
    """A proxy brings many clients on one connection."""
    source, memory = Source(keyring(1, "10.0.0.0/8")), ConnectionMemory()
    asked = Credentials(source, FakeClock())

    def check(client: tuple[str, int]) -> object:
        return asked.check(BEARER, memory=memory, client=client)

    first = check(INSIDE)
    refusal_of(lambda: check(OUTSIDE))
    assert check(INSIDE) is first
    source.keyring = keyring(2, "192.0.2.0/24")
    refusal_of(lambda: check(INSIDE))
    check(OUTSIDE)
    source.keyring = keyring(3)
    check(INSIDE)
    source.keyring = keyring(4, "203.0.113.1")
    refusal_of(lambda: check(INSIDE))


def test_what_is_known_long_ago_makes_no_difference_outside() -> None:
    asked = Credentials(Source(keyring(1, "10.0.0.0/8")), FakeClock())
    asked.source.age.is_over = True
    with pytest.raises(PolicyTooOld):
        asked.check(BEARER, client=INSIDE)
    refusal_of(lambda: asked.check(BEARER, client=OUTSIDE))


def test_a_certificate_counts_from_the_networks_of_its_principal(tmp_path: Path) -> None:
    world = World(tmp_path)
    billing = Principal("billing", ("consumer",), allowed_from=("10.0.0.0/8",))
    source = Source(Keyring(True, {}, 1, {"billing": billing}))
    named = {"DNS:billing.example": "billing", "DNS:gone.example": "gone"}
    asked = Credentials(source, world.clock, world.verifier, named)
    ends_ms = TimestampMs(world.clock.now_ms() + 1_000)
    shown = Certificate(("DNS:billing.example",), ends_ms)
    assert asked.check(None, shown, client=INSIDE).name == "billing"
    refused = refusal_of(lambda: asked.check(None, shown, client=OUTSIDE))
    gone = Certificate(("DNS:gone.example",), ends_ms)
    unknown = refusal_of(lambda: asked.check(None, gone, client=OUTSIDE))
    assert (refused.detail, refused.hint) == (unknown.detail, unknown.hint)
    assert noted_of(refused) == (ADDRESS_NOT_ALLOWED, "principal:billing")


def test_a_node_that_was_asked_has_decided_for_the_others() -> None:
    asked = Credentials(Source(keyring(1, "10.0.0.0/8")), FakeClock())
    assert asked.of_other_node("ann", None, None).name == "ann"


async def answers(node: ClosedNode, who: str, path: str) -> tuple[int, bytes]:
    answer = await node.ask(who, "GET", path)
    return answer.status, answer.body


@pytest.mark.anyio
async def test_the_answer_is_that_to_a_wrong_key_and_another_thing_is_noted() -> None:
    far = principal("far", "admin")._replace(allowed_from=("10.0.0.0/8",))
    near = principal("near", "viewer")._replace(allowed_from=("127.0.0.1",))
    async with closed_node() as node:
        node.access.show((*EVERYBODY, far, near))
        for path in ("/v1/topics/alpha-in", "/v1/topics", "/v1/nothing"):
            assert await answers(node, "far", path) == await answers(node, "stranger", path)
            assert (await node.ask("far", "GET", path)).status == 401
        assert (await node.ask("near", "GET", "/v1/topics/alpha-in")).status == 200
        noted = {(each.code, each.resource) for each in node.access.denials}
        assert noted == {("UNAUTHORIZED", ""), (ADDRESS_NOT_ALLOWED, "principal:far")}
        assert key_of("far").decode() not in str(node.access.denials)
