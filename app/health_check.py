"""Whether the node of this machine lives: for the health check of a container, which has no shell.

Asks `/healthz` on the port, and with the protocol, that the environment's settings name. Exit
status: 0 it answers, 1 it does not. Only the standard library, so that it costs next to nothing.
"""

import os
import ssl
import sys
import urllib.request
from collections.abc import Mapping
from typing import Final

PATIENCE_SECONDS: Final = 5.0


def url_of(environment: Mapping[str, str]) -> str:
    """Where the node is asked."""
    scheme = "https" if environment.get("CURLEW_TLS_CERT_FILE") else "http"
    return f"{scheme}://127.0.0.1:{environment.get('CURLEW_PORT') or 8710}/healthz"


def main(environment: Mapping[str, str] = os.environ) -> int:
    """The exit status."""
    whoever = ssl._create_unverified_context()  # noqa: S323  # itself, and no secret
    try:
        url = url_of(environment)
        with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS, context=whoever):  # noqa: S310
            return 0
    except OSError as error:
        sys.stderr.write(f"{url_of(environment)}: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
