"""Two nodes prove the cluster secret to each other, and whoever has none of it is told so."""

import pytest

from app.api.http.request_context import HEAD, HeadMemory
from app.api.peers.handshake import Answering, Asking, Refused
from app.api.relay.envelope import Envelope, client_line, opened
from app.runtime.secure.cluster_secret import ClusterSecret

OURS, OTHER = ClusterSecret(b"a" * 32), ClusterSecret(b"b" * 32)


def test_two_nodes_with_one_secret_agree() -> None:
    asking, answering = Asking(OURS), Answering(OURS)
    answering.check(asking.proof(answering.answer(asking.greeting())))


def test_a_node_with_another_secret_is_found_out_by_both() -> None:
    asking, answering = Asking(OTHER), Answering(OURS)
    line = answering.answer(asking.greeting())
    with pytest.raises(Refused, match="another cluster secret"):
        asking.proof(line)
    stranger = Asking(OTHER)
    line = Answering(OTHER).answer(stranger.greeting())
    answering.answer(stranger.greeting())
    with pytest.raises(Refused, match="another cluster secret"):
        answering.check(stranger.proof(line))


def test_a_proof_that_was_heard_counts_for_no_other_connection() -> None:
    asking, answering = Asking(OURS), Answering(OURS)
    heard = asking.proof(answering.answer(asking.greeting()))
    later = Answering(OURS)
    later.answer(asking.greeting())
    with pytest.raises(Refused):
        later.check(heard)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"GET / HTTP/1.1\r\n", "for nodes of the cluster only"),
        (b"\xff\xfe\n", "for nodes of the cluster only"),
        (b"curlew-cluster 0 12ab\n", "speaks version 1"),
    ],
)
def test_what_is_no_node_of_this_version_is_told_so(line: bytes, why: str) -> None:
    with pytest.raises(Refused, match=why):
        Answering(OURS).answer(line)


def test_who_refuses_is_quoted() -> None:
    with pytest.raises(Refused, match="speaks version 2"):
        Asking(OURS).proof(b"refused this node speaks version 2 of the cluster port\n")


@pytest.mark.parametrize(
    "envelope",
    [
        Envelope(7, 3, None, None, None),
        Envelope(7, 3, "oidc:https://id.example#ann bé", ("admin", "a,b"), 99),
        Envelope(0, 0, "ann", (), None, "news 20 7.1.0.9"),
        Envelope(7, 3, None, None, None, is_whole=True),
    ],
)
def test_an_envelope_comes_as_it_was_sent(envelope: Envelope) -> None:
    scope = {"headers": [(b"host", b"x"), *envelope.headers()]}
    assert opened(scope) == envelope
    assert scope["headers"] == [(b"host", b"x")]


def test_the_client_of_each_request_is_its_own_though_the_envelope_is_opened_once() -> None:
    memory = HeadMemory(ends_alike=True)
    envelope = Envelope(7, 3, "ann", None, None)
    sent = [(b"host", b"x"), *envelope.headers()]
    for number in range(1, 4):
        late = [(b"mq-request-id", b"%d" % number), (b"content-length", b"%d" % number)]
        line = client_line({"client": ("::1", number)}).strip()
        name, _, value = line.partition(b": ")
        scope = {"headers": [*sent, (name, value), *late], HEAD: memory, "client": ("node", 1)}
        assert opened(scope) == envelope
        assert scope["client"] == ("::1", number)
        assert scope["headers"] == [(b"host", b"x"), *late]


def test_a_request_without_an_envelope_is_none() -> None:
    with pytest.raises(ValueError, match="unpack"):
        opened({"headers": [(b"host", b"x")]})
