"""The networks that a principal is let in from: how they are read, and what is in them."""

import pytest

from app.domain.access.accounts import Fence, fence_of, read_networks
from app.domain.errors import InvalidRequest
from app.domain.limits import NETWORKS_OF_A_PRINCIPAL_MAX


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("::/0", "::/0"),
        ("192.0.2.7", "192.0.2.7"),
        ("192.0.2.7/32", "192.0.2.7"),
        ("2001:DB8:0::/32", "2001:db8::/32"),
        ("2001:db8::1", "2001:db8::1"),
        ("2001:db8::1/128", "2001:db8::1"),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::ffff:0:0/96", "0.0.0.0/0"),
    ],
)
def test_a_network_is_kept_in_one_form(text: str, kept: str) -> None:
    assert read_networks([text]) == (kept,)
    assert read_networks([kept, text]) == (kept,)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "/", "10.0.0.0/", "/8", "10.0.0/8", "10.0.0.0/33", "2001:db8::/129"),
        *("10.0.0.1/8", "2001:db8::1/32", "10.0.0.0/255.0.0.0", "10.0.0.0/0.255.255.255"),
        *("10.0.0.0/-1", "10.0.0.0/+8", "10.0.0.0/8/8", " 10.0.0.0/8", "010.0.0.0/8"),
        *("fe80::%eth0/64", "fe80::1%eth0", "localhost", "*", "10.*", "10.0.0.1-10.0.0.9", "1"),
        "10.0.0.0/\u0668",
    ],
)
def test_what_is_no_network_is_refused_where_it_stands(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_networks(["10.0.0.0/8", text])
    assert caught.value.pointer == "/allowed_from/1"


def test_there_are_only_so_many() -> None:
    most = [f"10.0.{number}.0/24" for number in range(NETWORKS_OF_A_PRINCIPAL_MAX)]
    assert len(read_networks(most)) == len(most)
    with pytest.raises(InvalidRequest, match="at most"):
        read_networks([*most, "192.0.2.0/24"])


@pytest.mark.parametrize(
    ("network", "inside", "outside"),
    [
        ("10.0.0.0/8", ("10.0.0.0", "10.255.255.255"), ("9.255.255.255", "11.0.0.0")),
        ("192.0.2.7", ("192.0.2.7",), ("192.0.2.6", "192.0.2.8")),
        ("10.1.0.0/16", ("::ffff:10.1.2.3",), ("::ffff:10.2.0.0", "::10.1.2.3")),
        ("0.0.0.0/0", ("255.255.255.255", "::ffff:1.2.3.4"), ("::1", "2001:db8::1")),
        (
            "2001:db8::/32",
            ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("2001:db7:ffff::", "2001:db9::"),
        ),
        ("::/0", ("::1", "fe80::1%eth0"), ("127.0.0.1", "::ffff:127.0.0.1")),
        ("::1", ("::1", "0:0:0:0:0:0:0:1"), ("::2", "127.0.0.1")),
        ("127.0.0.1", ("127.0.0.1",), ("", "unknown", "127.0.0.1:80", "[127.0.0.1]", "0x7f.1")),
    ],
)
def test_an_address_is_inside_or_outside(
    network: str, inside: tuple[str, ...], outside: tuple[str, ...]
) -> None:
    for fence in (Fence([network]), Fence(["203.0.113.0/24", network])):
        assert [each for each in inside if not fence.has(each)] == []
        assert [each for each in outside if fence.has(each)] == []


def test_no_networks_are_no_fence() -> None:
    assert fence_of(()) is None
    assert fence_of(("10.0.0.0/8",)) is not None
