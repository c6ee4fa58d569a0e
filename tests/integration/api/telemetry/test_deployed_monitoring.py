"""What `deploy/` gives to Prometheus and Grafana, held to the `/metrics` of a node after traffic.

A name or a label that a node does not have would leave an alarm silent and a panel empty, without
an error.
"""

import asyncio
import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import httpx
import promql_parser
import pytest
import yaml
from promql_parser import AggregateExpr, BinaryExpr, Expr, MatchOp, VectorSelector

from tests.support.cluster.three_replicas import three_replicas
from tests.support.metadata.databases import PostgresDatabases
from tests.support.nodes.node import ROOT, run_node

pytestmark = pytest.mark.postgres

RULES: Final = ROOT / "deploy/prometheus/curlew.rules.yml"
DASHBOARD: Final = ROOT / "deploy/grafana/curlew.json"
ALERTS_PAGE: Final = ROOT / "docs/running/monitoring/alerts.md"

OF_A_REPLICA: Final = "curlew_replica"
"""What the names of the metrics begin with that only a node with a replica has."""
OF_PROMETHEUS: Final = frozenset({"job", "instance"})
"""Labels that it adds to every sample by itself."""
_SAMPLE: Final = re.compile(r"(\w+)(?:\{(.*)\})? \S+")
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
_TYPE: Final = re.compile(r"# TYPE (\w+) (\w+)")


class Exposition(NamedTuple):
    """What a node shows: the values of each label by name; names without samples have none."""

    labels: dict[str, dict[str, set[str]]]

    def complaints(self, expression: str) -> list[str]:
        """What an expression uses and a node does not have."""
        found: list[str] = []

        def visit(node: Expr) -> None:
            if isinstance(node, VectorSelector):
                found.extend(self._of_selector(node))
            elif isinstance(node, AggregateExpr) and node.modifier is not None:
                found.extend(self._of_labels(node.expr, node.modifier.labels))
            elif isinstance(node, BinaryExpr) and node.modifier and node.modifier.matching:
                found.extend(self._of_labels(node, node.modifier.matching.labels))

        promql_parser.walk(promql_parser.parse(_without_variables(expression)), visit)
        return found

    def _of_selector(self, selector: VectorSelector) -> Iterator[str]:
        name = selector.name
        if name is None or name not in self.labels:
            yield f"no metric {name}"
            return
        for matcher in selector.matchers.matchers:
            values = self.labels[name].get(matcher.name)
            if matcher.name in OF_PROMETHEUS:
                continue
            if values is None:
                yield f"{name} has no label {matcher.name}"
            elif matcher.op in (MatchOp.Equal, MatchOp.NotEqual) and matcher.value not in values:
                yield f"{name} has no {matcher.name}={matcher.value}"

    def _of_labels(self, expression: Expr, labels: list[str]) -> Iterator[str]:
        names: set[str] = set()

        def visit(node: Expr) -> None:
            if isinstance(node, VectorSelector) and node.name in self.labels:
                names.add(node.name)

        promql_parser.walk(expression, visit)
        for name in names:
            for label in set(labels) - OF_PROMETHEUS - self.labels[name].keys():
                yield f"{name} has no label {label}"


def _without_variables(expression: str) -> str:
    """As Grafana sends it: a range for `$__rate_interval`, a pattern for each other variable."""
    return re.sub(r"\$\w+", ".*", expression.replace("$__rate_interval", "1m"))


def exposition_of(text: str) -> Exposition:
    labels: dict[str, dict[str, set[str]]] = {"up": {}}
    for name, kind in _TYPE.findall(text):
        suffixes = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        labels.update({name + suffix: defaultdict(set) for suffix in suffixes})
    for line in text.splitlines():
        if found := _SAMPLE.fullmatch(line):
            for label, value in _LABEL.findall(found[2] or ""):
                labels[found[1]].setdefault(label, set()).add(value)
    return Exposition({name: dict(each) for name, each in labels.items()})


@pytest.fixture(scope="module")
def of_lone_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("monitored")
    with run_node(directory) as node, httpx.Client(base_url=node.url, timeout=60) as http:
        http.post("/v1/topics/orders/messages", content=b"12345").raise_for_status()
        refused = http.post("/v1/topics/orders/messages", headers={"mq-delay": "no time"})
        assert refused.status_code == 400
        http.post("/v1/topics/orders/groups/billing/messages:receive").raise_for_status()
        yield http.get("/metrics").text


@pytest.fixture(scope="module")
def of_leader(
    tmp_path_factory: pytest.TempPathFactory, postgres_databases: PostgresDatabases
) -> str:
    """What a node shows that leads two others."""

    async def fetched() -> str:
        directory = tmp_path_factory.mktemp("replicas")
        async with three_replicas(directory, postgres_databases.migrated()) as replicas:
            return (await (await replicas.led()).client.get("/metrics")).text

    return asyncio.run(fetched())


@pytest.fixture(scope="module")
def exposition(of_lone_node: str, of_leader: str) -> Exposition:
    """What the two show between them."""
    lines = [line for line in of_leader.splitlines() if OF_A_REPLICA in line]
    assert lines
    return exposition_of("\n".join([of_lone_node, *lines]))


def test_a_lone_node_shows_nothing_of_replicas(of_lone_node: str) -> None:
    assert OF_A_REPLICA not in of_lone_node


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return [panel for panel in found if panel["type"] != "row"]


ALERTS: Final = [(each["alert"], each["expr"]) for each in alerts()]
PANELS: Final = [
    (panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]
]
UNSEEN: Final = frozenset({"curlew_one_way_dropped_total", "curlew_hook_events_dropped_total"})
"""Without samples until something goes wrong: their labels stand in the source."""


@pytest.mark.parametrize(("name", "expression"), [*ALERTS, *PANELS])
def test_an_expression_uses_what_a_node_has(
    name: str, expression: str, exposition: Exposition
) -> None:
    complaints = exposition.complaints(expression)
    assert [each for each in complaints if each.split()[0] not in UNSEEN] == [], name


def test_an_unknown_name_label_or_value_is_noticed(exposition: Exposition) -> None:
    assert exposition.complaints("sum(rate(rocketmq_messages_in[1m]))")
    assert exposition.complaints("sum by (broker) (rate(rocketmq_messages_in_total[1m]))")
    assert exposition.complaints('curlew_degraded{kind="log"} == 1')
    assert exposition.complaints('curlew_degraded{code="DISK_FILLED"} == 1')
    assert exposition.complaints("curlew_ready * on (node_id) curlew_degraded")
    assert exposition.complaints('max(up{job="curlew"}) by (instance)') == []


def test_variables_of_the_dashboard_have_values(exposition: Exposition) -> None:
    variables = json.loads(DASHBOARD.read_text())["templating"]["list"]
    for variable in variables:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
            assert found, variable["name"]
            selector, label = found.groups()
            assert exposition.complaints(f"sum by ({label}) ({selector})") == []


def test_a_panel_uses_variables_that_there_are() -> None:
    board = json.loads(DASHBOARD.read_text())
    known = {each["name"] for each in board["templating"]["list"]} | {"__rate_interval"}
    assert set(re.findall(r"\$(\w+)", json.dumps(board["panels"]))) <= known
    identities = [panel["id"] for panel in board["panels"]]
    assert len(set(identities)) == len(identities)
    assert len({title for title, _ in PANELS}) == len(panels())


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", "--lint=all", "--lint-fatal", "curlew.rules.yml"),
        ("check", "config", "prometheus.yml"),
        ("test", "rules", "curlew.tests.yml"),
    ],
)
def test_prometheus_takes_the_rules(arguments: tuple[str, ...]) -> None:
    """The last of them fires each alarm."""
    ran = subprocess.run(
        ["promtool", *arguments], cwd=RULES.parent, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_each_alarm_is_fired_once_and_has_its_section() -> None:
    tests = yaml.safe_load((RULES.parent / "curlew.tests.yml").read_text())["tests"]
    fired = {
        rule["alertname"]
        for test in tests
        for rule in test["alert_rule_test"]
        if rule.get("exp_alerts")
    }
    names = [name for name, _ in ALERTS]
    assert fired == set(names)
    assert re.findall(r"^### (\w+)$", ALERTS_PAGE.read_text(), re.MULTILINE) == names
    page = str(ALERTS_PAGE.relative_to(ROOT))
    for alert in alerts():
        assert alert["annotations"]["runbook"] == f"{page}#{alert['alert'].lower()}"
        assert alert["labels"]["severity"] in {"critical", "warning"}
