"""What a client's certificate says of it: exact names, and until when."""

from app.api.http.request_context import CERTIFICATE, OUR_EXTENSIONS_UNDER_TLS, WHOLE_ANSWER
from app.api.server.certificates import extensions_of

SHOWN = {
    "subject": ((("commonName", "admin"),),),
    "notAfter": "Nov 24 14:00:00 2026 GMT",
    "subjectAltName": (
        ("DNS", "billing.example"),
        ("URI", "spiffe://example/billing"),
        ("IP Address", "192.0.2.7"),
        ("DirName", "CN=admin"),
    ),
}


def test_without_a_certificate_all_connections_have_the_same() -> None:
    assert extensions_of(None) is OUR_EXTENSIONS_UNDER_TLS
    assert extensions_of({}) is OUR_EXTENSIONS_UNDER_TLS


def test_only_exact_names_count() -> None:
    found = extensions_of(SHOWN)
    assert WHOLE_ANSWER in found
    certificate = found[CERTIFICATE]
    assert certificate.names == (
        "DNS:billing.example",
        "URI:spiffe://example/billing",
        "IP:192.0.2.7",
    )
    assert certificate.ends_ms == 1_795_528_800_000
