"""What a real node says about topics, as far as the connector relies on it."""

from pathlib import Path

from pyspark_curlew.client import CurlewClient, TopicFacts
from pyspark_curlew.http_options import HTTP_NAMES, read_http_options
from pyspark_curlew.option_reader import OptionReader

from spark_connector.tests.support.real_node import run_real_node


def test_a_real_topic_made_anew_has_another_generation(tmp_path: Path) -> None:
    with run_real_node(tmp_path) as node:
        node.add_topic("orders", 2)
        options = read_http_options(OptionReader({"endpoint": node.base_url}, HTTP_NAMES))
        client = CurlewClient(options)
        first = client.topic("orders")
        node.add_topic("orders", 3)
        assert client.topic("orders") == TopicFacts(3, first.generation)
        node.remove_topic("orders")
        node.add_topic("orders", 2)
        assert client.topic("orders").generation > first.generation
        assert client.topic_names() == ["orders"]
