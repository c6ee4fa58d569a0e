"""Credentials and headers on the wire, and what is said when they are refused."""

from pathlib import Path

import pytest
from pyspark_curlew.errors import AccessDenied, OptionInvalid
from pyspark_curlew.http.client import CurlewClient
from pyspark_curlew.http.http_options import HTTP_NAMES, read_http_options
from pyspark_curlew.option_reader import OptionReader
from pyspark_curlew.options import parse_batch_options

from spark_connector.tests.support.fake_node import FakeNode, refusal


@pytest.fixture
def node(fake: FakeNode) -> FakeNode:
    fake.add_topic("orders", queues=1)
    return fake


def client_of(node: FakeNode, **given: str) -> CurlewClient:
    reader = OptionReader({"endpoint": node.base_url, **given}, HTTP_NAMES)
    return CurlewClient(read_http_options(reader))


def sent(node: FakeNode, **given: str) -> str | None:
    client_of(node, **given).offsets("orders", "latest")
    return node.headers[-1].get("Authorization")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, None),
        ({"token": "abc.def"}, "Bearer abc.def"),
        ({"username": "me", "password": "p:w"}, "Basic bWU6cDp3"),
        ({"tokenEnv": "MQ_TOKEN"}, "Bearer first"),
    ],
)
def test_what_is_sent(
    node: FakeNode,
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, str],
    expected: str | None,
) -> None:
    monkeypatch.setenv("MQ_TOKEN", "first")
    assert sent(node, **given) == expected


def test_a_token_in_a_file_is_read_anew(node: FakeNode, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    client = client_of(node, tokenFile=str(path))
    client.offsets("orders", "latest")
    path.write_text("second\n")
    client.offsets("orders", "latest")
    assert [headers["Authorization"] for headers in node.headers] == [
        "Bearer first",
        "Bearer second",
    ]


def test_a_token_that_is_not_there(node: FakeNode) -> None:
    """A token that was given as the place of one is in no error and no `repr`."""
    secret = "Zx9Qm2Lk7Pw4Rt6Yb1"
    for name, words in (
        ("tokenFile", r"cannot be read .*\(FileNotFound"),
        ("tokenEnv", "no token"),
    ):
        given = {"endpoint": node.base_url, "topic": "orders", name: secret}
        assert secret not in repr(parse_batch_options(given))
        with pytest.raises(AccessDenied, match=words) as denial:
            sent(node, **{name: secret})
        assert name in str(denial.value)
        assert secret not in str(denial.value)
    with pytest.raises(OptionInvalid, match="a key itself goes into 'token'") as refused:
        sent(node, tokenFile=f"curlew_{'A' * 13}_{secret}{'b' * 31}")
    assert secret not in str(refused.value)
    assert node.requests == []


@pytest.mark.parametrize("text", ["s3cr\u2603t", "s3 cret", "s3\ncret"])
def test_a_token_that_no_header_can_have_is_not_repeated(
    node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("MQ_TOKEN", text)
    path = tmp_path / "token"
    path.write_text(text)
    for given in ({"tokenEnv": "MQ_TOKEN"}, {"tokenFile": str(path)}):
        with pytest.raises(AccessDenied, match=r"^CURLEW_AUTH_FAILED") as denial:
            sent(node, **given)
        assert "s3" not in str(denial.value).replace(str(path), "")
    with pytest.raises(AccessDenied, match=r"cannot be read on this machine \(ValueError"):
        sent(node, tokenFile="a\0b")
    with pytest.raises(OptionInvalid, match=r"'headers\.X-A' has a character"):
        sent(node, **{"headers.X-A": "s3cr\u2603t"})
    assert node.requests == []


def test_a_refusal_names_the_source_of_the_token_and_not_the_token(node: FakeNode) -> None:
    for given, words in (
        ({"token": "s3cret"}, "with option 'token'"),
        ({"username": "me", "password": "s3cret"}, "as user 'me'"),
        ({}, "without credentials"),
    ):
        node.faults = [refusal(401)]
        with pytest.raises(AccessDenied, match=words) as denial:
            sent(node, **given)
        assert "s3cret" not in str(denial.value)


def test_headers_of_the_user(node: FakeNode) -> None:
    sent(node, **{"headers.X-Tenant": "blue"})
    assert node.headers[-1]["X-Tenant"] == "blue"


@pytest.mark.parametrize(
    "endpoint",
    ["u:hunter2@h:8710", "http://h:1,u:hunter2@h:8710", "h?token=hunter2", "http://h?t=hunter2"],
)
def test_an_endpoint_that_is_refused_is_told_without_its_secret(endpoint: str) -> None:
    with pytest.raises(OptionInvalid) as refused:
        parse_batch_options({"endpoint": endpoint, "topic": "orders"})
    assert "hunter2" not in str(refused.value)
