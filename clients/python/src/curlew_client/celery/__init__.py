"""Curlew as the broker of Celery, and of any other program over kombu: `curlew-client[celery]`.

    import curlew_client.celery                        # makes curlew:// and curlews:// known
    app = Celery("shop", broker="curlew://127.0.0.1:8710")

An exchange is a topic, and a queue is a consumer group that reads it: what `names` and `topology`
say. The page "Celery" of the documentation has the rest.
"""

from typing import Final

from kombu.transport import TRANSPORT_ALIASES

SCHEMES: Final = {"curlew": "Transport", "curlews": "TlsTransport"}
"""Of broker URLs: over plain HTTP, and over HTTPS."""


def register() -> None:
    """Make the schemes known to kombu; importing this package does it."""
    for scheme, name in SCHEMES.items():
        TRANSPORT_ALIASES[scheme] = f"curlew_client.celery.transport:{name}"


register()
