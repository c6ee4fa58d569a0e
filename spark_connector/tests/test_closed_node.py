"""A real node that has a certificate and asks for keys: written, read, and refused without a word
that gives the key away."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.integration.test_keys import made
from tests.support.clients.tls import TlsPlace
from tests.support.nodes.node import run_node

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """How to reach the node, with the key of its administrator."""
    folder: Path = tmp_path_factory.mktemp("closed")
    place = TlsPlace(folder / "tls")
    key = made(folder / "data", "init")
    with run_node(folder / "data", "--auth", "required", *place.flags) as node:
        assert node.url.startswith("https:")
        context, headers = place.client(), {"Authorization": f"Bearer {key}"}
        topic = f"{node.url}/v1/topics/orders"
        httpx.put(topic, json={"queues": 2}, headers=headers, verify=context).raise_for_status()
        yield {
            "endpoint": f"https://127.0.0.1:{node.port}",
            "topic": "orders",
            "tls.ca": str(place.authority_file),
            "token": key,
        }


def test_rows_go_there_and_come_back_with_a_key(
    spark: "SparkSession", options: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    rows = spark.createDataFrame(
        [(f"k{n}", f"v{n}") for n in range(20)], "key STRING, value STRING"
    )
    rows.write.format("curlew").options(**options).mode("append").save()
    found = spark.read.format("curlew").options(**options).load()
    values = {(bytes(row.key), bytes(row.value)) for row in found.select("key", "value").collect()}
    assert values == {(b"k%d" % n, b"v%d" % n) for n in range(20)}
    found.explain(extended=True)
    assert options["token"] not in capfd.readouterr().out
    assert options["token"] not in repr(found)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"token": None}, "CURLEW_AUTH_FAILED.*without credentials"),
        ({"token": "curlew_" + "wrong" * 9}, "CURLEW_AUTH_FAILED.*with option 'token'"),
        ({"tls.ca": None}, "CURLEW_AUTH_FAILED.*certificate is not trusted .*'tls.ca'"),
    ],
)
def test_what_is_refused_says_why_and_repeats_no_key(
    spark: "SparkSession", options: dict[str, str], changed: dict[str, str | None], words: str
) -> None:
    given = {k: v for k, v in {**options, **changed}.items() if v is not None}
    with pytest.raises(Exception, match=words) as refusal:
        spark.read.format("curlew").options(**given).load().collect()
    assert given.get("token", "curlew_") not in str(refusal.value).replace("curlew_client", "")
