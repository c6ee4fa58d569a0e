"""The expressions of RocketMQ 5's Grafana dashboards, evaluated by a Prometheus that scrapes one.

What each figure is, `test_dashboard_expressions` says; here Prometheus itself reads `/metrics` and
computes: a panel has values, rates of what happens are above nothing, and sums are those of the
page.
"""

import json
import math
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.integration.api.telemetry.test_dashboard_expressions import (
    PANELS,
    VARIABLES,
    evaluated,
    samples_of,
    traffic,
)
from tests.support.nodes.free_ports import free_port
from tests.support.nodes.node import ROOT, RunningNode, run_node
from tests.support.nodes.waiting import wait_until

SECONDS: Final = 60
OVER_TIME: Final = ("rate(", "increase(")
BOARD: Final = ROOT / "deploy/grafana/curlew.json"
_MOVES: Final = re.compile(r"latency|behind|storage_size")
"""What is another figure at the next look."""


class Prometheus:
    """One that scrapes a node."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def values(self, expression: str) -> list[float]:
        """Of the series that an expression has now; raises for one that is none."""
        found = self._asked("/api/v1/query", query=expression)["result"]
        return [float(each["value"][1]) for each in found]

    def values_of_label(self, metric: str, label: str) -> list[str]:
        """What a variable of a dashboard offers."""
        found: list[str] = self._asked(f"/api/v1/label/{label}/values", **{"match[]": metric})
        return found

    def _asked(self, path: str, **parameters: str) -> Any:
        answer = self._http.get(path, params=parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]


@contextmanager
def prometheus_of(node: RunningNode, directory: Path) -> Iterator[Prometheus]:
    """Prometheus, with a scrape each quarter of a second."""
    directory.mkdir()
    scraped = {"job_name": "rocketmq", "static_configs": [{"targets": [f"127.0.0.1:{node.port}"]}]}
    every = {"scrape_interval": "250ms", "scrape_timeout": "250ms"}
    settings = directory / "prometheus.yml"  # JSON is YAML
    settings.write_text(json.dumps({"global": every, "scrape_configs": [scraped]}))
    port = free_port()
    command = ["prometheus", f"--config.file={settings}", f"--storage.tsdb.path={directory}/data"]
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(
            [*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=SECONDS) as http:
            prometheus = Prometheus(http)

            def scrapes() -> bool:
                assert process.poll() is None, (directory / "log").read_text()
                try:
                    return http.get("/-/ready").is_success and prometheus.values("up") == [1]
                except httpx.TransportError:
                    return False

            wait_until(scrapes, SECONDS)
            yield prometheus
    finally:
        process.kill()
        process.wait(SECONDS)


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, str]]:
    """What has seen the traffic come, and `/metrics` afterwards. Counters that begin above zero
    have no rate until they grow: so it comes twice, with a scrape between."""
    directory = tmp_path_factory.mktemp("scraped")
    with run_node(directory / "data") as node, httpx.Client(base_url=node.url, timeout=60) as http:
        http.put("/v1/topics/steps", json={"type": "fifo"}).raise_for_status()
        with prometheus_of(node, directory / "prometheus") as prometheus:
            for times in (1, 2):
                traffic(http)
                seen = f'rocketmq_send_to_dlq_messages_total{{topic="orders"}} == {times}'
                wait_until(lambda seen=seen: bool(prometheus.values(seen)), SECONDS)  # type: ignore[misc]
            yield prometheus, http.get("/metrics").text


@pytest.fixture(scope="module")
def variables(scraped: tuple[Prometheus, str]) -> dict[str, str]:
    labels = next(s.labels for s in samples_of(scraped[1]) if s.name == "rocketmq_topic_number")
    return labels | {"topic": "orders", "consumer_group": "billing"}


def filled(expression: str, variables: dict[str, str]) -> str:
    """As Grafana sends it."""
    return re.sub(r"\$(\w+)", lambda found: variables[found[1]], expression)


@pytest.mark.parametrize(("expression", "_is_right"), PANELS)
def test_prometheus_has_our_figures_for_a_panel(
    expression: str,
    _is_right: Callable[[float], bool],
    scraped: tuple[Prometheus, str],
    variables: dict[str, str],
) -> None:
    prometheus, text = scraped
    values = prometheus.values(filled(expression, variables))
    assert values, f"an empty panel: {expression}"
    if any(each in expression for each in OVER_TIME):
        assert max(each for each in values if not math.isnan(each)) > 0
    elif not _MOVES.search(expression):
        assert sum(values) == evaluated(expression, samples_of(text), variables)


@pytest.mark.parametrize("expression", VARIABLES)
def test_prometheus_has_values_for_a_variable(
    expression: str, scraped: tuple[Prometheus, str]
) -> None:
    found = re.fullmatch(r"label_values\((\w+), (\w+)\)", expression)
    assert found
    assert scraped[0].values_of_label(found[1], found[2])


def test_prometheus_takes_each_expression_of_our_own_dashboard(
    scraped: tuple[Prometheus, str],
) -> None:
    panels = [each for each in json.loads(BOARD.read_text())["panels"] if each["type"] != "row"]
    for expression in (target["expr"] for panel in panels for target in panel["targets"]):
        in_range = expression.replace("$__rate_interval", "1m")
        scraped[0].values(re.sub(r"\$\w+", ".*", in_range))


def test_an_empty_panel_is_noticed(scraped: tuple[Prometheus, str]) -> None:
    assert scraped[0].values("sum(rate(rocketmq_messages_in[1m]))") == []
    assert scraped[0].values('rocketmq_storage_size{cluster="other"}') == []
