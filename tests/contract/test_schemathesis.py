"""Schemathesis holds a real node against the whole committed document.

No 5xx, no undeclared status or media type, answers as their schemas say, bad input refused, 405
with `Allow` for other methods. The cases are derived from the document, the same in each run;
`CURLEW_SCHEMATHESIS_EXAMPLES` makes more of them (`make test-conformance`).
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.contract.schemathesis_hooks import WITHOUT_A_KEY
from tests.support.nodes.node import ROOT, RunningNode, run_node
from tests.support.whole_document import with_all_answers

DOCUMENT = ROOT / "openapi" / "openapi.json"
EXAMPLES = int(os.environ.get("CURLEW_SCHEMATHESIS_EXAMPLES", "10"))
"""Random cases per operation, beside those at the bounds of every parameter."""
SECONDS = 400 if EXAMPLES <= 10 else 3_600
"""Ten times what a run takes on an idle machine; it hangs, if it takes longer."""
EXIT_FAILURES = 1


@dataclass
class Fuzzed:
    """A node with something in it, and the settings that let Schemathesis find it."""

    node: RunningNode
    settings: Path

    def run(self, document: Path, *options: str) -> subprocess.CompletedProcess[str]:
        whole = self.settings.with_name("whole.json")
        whole.write_text(json.dumps(with_all_answers(json.loads(document.read_text()))))
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(self.settings)]
        command += ["run", str(whole), "--url", self.node.url, "--no-color"]
        command += ["--phases", "examples,coverage,fuzzing", "--max-examples", str(EXAMPLES)]
        command += ["--generation-deterministic", *options]
        command += ["--suppress-health-check", "all", "--continue-on-failure"]
        # What the schema cannot say (one of three parameters, a handle that was issued here) makes
        # good-looking input bad, so this one check says nothing.
        command += ["--exclude-checks", "positive_data_acceptance"]
        hooks = {"SCHEMATHESIS_HOOKS": "tests.contract.schemathesis_hooks", "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            command,
            cwd=self.settings.parent,
            env={**os.environ, **hooks},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzed]:
    directory = tmp_path_factory.mktemp("schemathesis")
    with run_node(directory / "data", "--auto-create-topics", "false") as node:
        settings = directory / "schemathesis.toml"
        settings.write_text(settings_of(fill(node)))
        yield Fuzzed(node, settings)


def fill(node: RunningNode) -> dict[str, list[Any]]:
    """Put messages in, and name what can be found: values by dictionary."""
    with httpx.Client(base_url=node.url, timeout=60) as http:
        http.put("/v1/topics/orders", json={"queues": 2, "flush": "async"}).raise_for_status()
        http.put("/v1/groups/billing", json={}).raise_for_status()
        for name in DOOMED:
            http.put(f"/v1/topics/{name}", json={}).raise_for_status()
            http.put(f"/v1/groups/{name}", json={}).raise_for_status()
        sent = [
            http.post("/v1/topics/orders/messages?queue_id=0&tag=a&keys=k", content=bytes([byte]))
            for byte in range(256)
        ]
        leased = http.post(
            "/v1/topics/orders/groups/billing/messages:receive",
            json={"max_messages": 64, "invisible": "1h"},
        )
    return {
        "doomed": [*DOOMED],
        "topics": ["orders"],
        "groups": ["billing"],
        "producers": ["spark:job:0", "p1"],
        "queues": [0, 1],
        "message_ids": [answer.json()["message_id"] for answer in sent[:8]],
        "handles": [message["receipt_handle"] for message in leased.json()["messages"]],
        "wait_texts": ["0", "10ms"],
        "durations": ["1s", "250ms", "2h"],
        "short_times": ["10ms", "1ms", "20ms"],
        "moments": ["earliest", "latest", "0"],
    }


BINDINGS = {
    "path.topic": ("topics", 0.8),
    "path.group": ("groups", 0.8),
    "path.queue": ("queues", 0.8),
    "path.message_id": ("message_ids", 0.8),
    "query.topics": ("topics", 0.8),
    "path.producer": ("producers", 0.8),
    "query.producer_id": ("producers", 0.8),
    "path.handle": ("handles", 0.8),
    "query.wait": ("wait_texts", 1),
    "body.wait": ("wait_texts", 1),
    "query.duration": ("short_times", 1),
    "query.at": ("moments", 0.7),
    "query.invisible": ("durations", 0.7),
    "query.delay": ("durations", 0.7),
    "body.invisible": ("durations", 0.7),
    "body.delay": ("durations", 0.7),
}


DOOMED = ("doomed-1", "doomed-2", "doomed-3")
"""Topics and groups to be deleted, so that the others live through the run."""
DELETIONS = {"delete_topic": "path.topic", "delete_group": "path.group"}


def settings_of(values: dict[str, list[Any]]) -> str:
    """The settings file: JSON values are TOML values, as far as they are used here."""
    lines = [f"[dictionaries.{name}]\nvalues = {json.dumps(each)}" for name, each in values.items()]
    lines.append("[parameters]")
    lines += [
        f'"{key}" = {{ dictionary = "{name}", probability = {share} }}'
        for key, (name, share) in BINDINGS.items()
    ]
    for operation, key in DELETIONS.items():
        lines += ["[[operations]]", f'include-operation-id = "{operation}"']
        lines.append(f'parameters = {{ "{key}" = {{ dictionary = "doomed", probability = 1.0 }} }}')
    return "\n".join(lines) + "\n"


def test_the_node_keeps_its_document(fuzzed: Fuzzed) -> None:
    run = fuzzed.run(DOCUMENT)
    assert run.returncode == 0, run.stdout + run.stderr
    count = sum(len(methods) for methods in json.loads(DOCUMENT.read_text())["paths"].values())
    assert f"Tested: {count}" in run.stdout, "not every operation was tried"
    log = fuzzed.node.log.read_text()
    assert "Traceback" not in log, log
    assert httpx.get(fuzzed.node.url + "/readyz", timeout=60).status_code == 200


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "control-open"])
def test_without_a_key_a_closed_node_answers_401_whatever_is_asked(
    tmp_path: Path, is_closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: an open node is noticed."""
    monkeypatch.setenv(WITHOUT_A_KEY, "1")
    settings = tmp_path / "schemathesis.toml"
    settings.write_text("")
    mode = ("--auth", "required") if is_closed else ()
    with run_node(tmp_path / "data", *mode) as node:
        fuzzed = Fuzzed(node, settings)
        some = () if is_closed else ("--include-operation-id", "list_topics")
        phases = ("--phases", "coverage,fuzzing")  # what the document shows is among them
        run = fuzzed.run(DOCUMENT, "--checks", "only_who_shows_a_key", *phases, *some)
    assert run.returncode == (0 if is_closed else EXIT_FAILURES), run.stdout + run.stderr
    if is_closed:
        count = sum(len(methods) for methods in json.loads(DOCUMENT.read_text())["paths"].values())
        assert f"Tested: {count}" in run.stdout, "not every operation was tried"


def forget_status(document: dict[str, Any]) -> None:
    del document["paths"]["/v1/topics/{topic}/stats"]["get"]["responses"]["404"]


def forget_media_type(document: dict[str, Any]) -> None:
    answer = document["components"]["responses"]["Problem404"]
    answer["content"] = {"text/plain": {"schema": {"type": "string"}}}


def want_another_shape(document: dict[str, Any]) -> None:
    answers = document["paths"]["/v1/topics/{topic}/stats"]["get"]["responses"]
    content = answers["200"]["content"]
    content["application/json"]["schema"] = {"type": "object", "required": ["colour"]}


def forbid_what_is_taken(document: dict[str, Any]) -> None:
    parameters = document["paths"]["/v1/topics"]["get"]["parameters"]
    [page_size] = [each for each in parameters if each["name"] == "page_size"]
    page_size["schema"] = {"type": "integer", "minimum": 5, "maximum": 6}


@pytest.mark.parametrize(
    ("falsify", "operation", "complaint"),
    [
        (forget_status, "get_topic_stats", "Undocumented status code"),
        (forget_media_type, "get_topic_stats", "Undocumented Content-Type"),
        (want_another_shape, "get_topic_stats", "Response violates schema"),
        (forbid_what_is_taken, "list_topics", "Schema-violating request accepted"),
    ],
)
def test_a_node_that_does_not_keep_it_is_noticed(
    fuzzed: Fuzzed,
    tmp_path: Path,
    falsify: Callable[[dict[str, Any]], None],
    operation: str,
    complaint: str,
) -> None:
    document = json.loads(DOCUMENT.read_text())
    falsify(document)
    falsified = tmp_path / "openapi.json"
    falsified.write_text(json.dumps(document))
    run = fuzzed.run(falsified, "--include-operation-id", operation)
    assert run.returncode == EXIT_FAILURES, run.stdout + run.stderr
    assert complaint in run.stdout, run.stdout
