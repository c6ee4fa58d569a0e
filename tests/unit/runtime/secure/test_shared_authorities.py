"""Clients of httpx share what the machine trusts, and nothing that they name themselves."""

import ssl
from typing import Any

import httpx


def context_of(client: httpx.Client) -> object:
    transport: Any = client._transport
    return transport._pool._ssl_context


def test_clients_share_the_authorities_of_the_machine() -> None:
    with httpx.Client() as first, httpx.Client() as second:
        assert context_of(first) is context_of(second)


def test_who_names_authorities_or_trusts_anybody_is_not_concerned() -> None:
    own = ssl.create_default_context()
    with httpx.Client() as usual, httpx.Client(verify=own) as named:
        assert context_of(named) is own
        with httpx.Client(verify=False) as trusting:
            context = context_of(trusting)
            assert isinstance(context, ssl.SSLContext)
            assert context.verify_mode is ssl.CERT_NONE
        shared = context_of(usual)
        assert isinstance(shared, ssl.SSLContext)
        assert shared.verify_mode is ssl.CERT_REQUIRED
