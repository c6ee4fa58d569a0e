"""The authorities that the machine trusts, read once for all of httpx's clients in a process.

Each `httpx.Client` and each `httpx.get` reads them anew, which costs 0.02 s of processor time;
tests that wait for a node ask it again and again.
"""

from functools import cache
from ssl import SSLContext

from httpx._config import create_ssl_context
from httpx._transports import default
from httpx._types import CertTypes


def read_authorities_once() -> None:
    """From now on. A client that names its own authorities, or a certificate, is not concerned."""
    vars(default)["create_ssl_context"] = _context


def _context(
    verify: SSLContext | str | bool = True, cert: CertTypes | None = None, trust_env: bool = True
) -> SSLContext:
    if verify is True and cert is None:
        return _of_the_machine(trust_env)
    return create_ssl_context(verify, cert, trust_env)


@cache
def _of_the_machine(trust_env: bool) -> SSLContext:
    return create_ssl_context(trust_env=trust_env)
