"""Which replica may answer a read, by header or query."""

import pytest

from app.api.dataplane.pulls.read_choice import reads_any_of
from app.api.http.errors import UnknownParameter
from app.domain.errors import InvalidRequest


@pytest.mark.parametrize(
    ("header", "alias", "reads_any"),
    [
        (None, None, False),
        (b"any", None, True),
        (None, "any", True),
        (b"any", "any", True),
        (b"leader", None, False),
        (None, "leader", False),
    ],
)
def test_a_header_or_the_query_says_it(
    header: bytes | None, alias: str | None, *, reads_any: bool
) -> None:
    headers = [] if header is None else [(b"mq-read", header)]
    assert reads_any_of(headers, alias) is reads_any


@pytest.mark.parametrize(
    ("header", "alias"), [(b"any", "leader"), (b"both", None), (None, ""), (b"", None)]
)
def test_what_contradicts_or_means_nothing_is_refused(
    header: bytes | None, alias: str | None
) -> None:
    headers = [] if header is None else [(b"mq-read", header)]
    with pytest.raises(InvalidRequest, match="it must be leader or any"):
        reads_any_of(headers, alias)


def test_headers_of_a_message_are_refused() -> None:
    with pytest.raises(UnknownParameter):
        reads_any_of([(b"mq-tag", b"x")], None)
