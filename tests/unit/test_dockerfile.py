"""No Docker engine runs the tests, so each step of the Dockerfile is a command that make runs, and
what compose.yaml starts is held to the image and to the settings of a node."""

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.config import DEFAULT_PORT, ConfigError, load_config

REPOSITORY = Path(__file__).parents[2]
TARGETS = ("venv", "run", "serve", "health")
"""The commands of `make` whose lines the Dockerfile repeats."""
GIVEN_TO_MAKE = ("ARGS", "MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS")
"""How the arguments of `make test ARGS=…` reach the programs it runs, and a `make` among them."""


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """(keyword, rest) of each instruction, continued lines joined, comments left out."""
    kept = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(kept).replace("\\\n", " ").splitlines():
        if line.strip():
            keyword, _, rest = line.strip().partition(" ")
            yield keyword.upper(), rest.strip()


def steps(text: str) -> list[str]:
    """The shell commands that building and running the image executes."""
    found = []
    start: dict[str, list[str]] = {}
    for keyword, rest in instructions(text):
        if keyword == "RUN":
            found += [part.strip() for part in rest.split("&&")]
        elif keyword == "HEALTHCHECK":
            found.append(" ".join(json.loads(rest.partition("CMD ")[2])))
        elif keyword in {"ENTRYPOINT", "CMD"}:
            start[keyword] = json.loads(rest)
    return [*found, " ".join([*start["ENTRYPOINT"], *start["CMD"]])]


def make_commands() -> set[str]:
    """What `make` would run for `TARGETS` on a fresh machine."""
    plan = subprocess.run(
        ["make", "--dry-run", "--always-make", "--no-print-directory", *TARGETS],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if name not in GIVEN_TO_MAKE},
    ).stdout
    return {line.strip() for line in plan.splitlines()}


@pytest.fixture(scope="module")
def dockerfile() -> str:
    return (REPOSITORY / "Dockerfile").read_text()


def test_every_step_is_a_command_of_make(dockerfile: str) -> None:
    found = steps(dockerfile)
    assert len(found) >= 7
    assert [step for step in found if step not in make_commands()] == []


def test_a_step_of_its_own_would_be_noticed(dockerfile: str) -> None:
    changed = dockerfile + "\nRUN python3 -m venv .venv && apt-get install something\n"
    strange = set(steps(changed)) - make_commands()
    assert strange == {"apt-get install something"}


def test_arguments_of_the_make_that_runs_the_tests_are_not_of_the_image(
    dockerfile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARGS", "-k name")
    monkeypatch.setenv("MAKEFLAGS", r" -- ARGS=-k\ name")
    assert set(steps(dockerfile)) <= make_commands()


def test_what_is_copied_exists_and_is_not_ignored(dockerfile: str) -> None:
    allowed = re.findall(r"^!(\S+)$", (REPOSITORY / ".dockerignore").read_text(), re.MULTILINE)
    for keyword, rest in instructions(dockerfile):
        if keyword != "COPY" or "--from=" in rest:
            continue
        for source in rest.split()[:-1]:
            assert (REPOSITORY / source).exists(), source
            assert any(Path(source).match(pattern) for pattern in allowed), source


def test_the_last_stage_is_not_root(dockerfile: str) -> None:
    last_stage = dockerfile.rpartition("\nFROM ")[2]
    users = [rest for keyword, rest in instructions(last_stage) if keyword == "USER"]
    assert users
    assert not users[-1].startswith(("root", "0"))


def environment_of(text: str) -> dict[str, str]:
    """What the image sets in the environment of the node."""
    last_stage = text.rpartition("\nFROM ")[2]
    lines = [rest for keyword, rest in instructions(last_stage) if keyword == "ENV"]
    return dict(pair.split("=", 1) for line in lines for pair in line.split())


def test_the_image_serves_only_when_it_is_told_that_it_is_open(dockerfile: str) -> None:
    image = environment_of(dockerfile)
    with pytest.raises(ConfigError, match="CURLEW_INSECURE_ANONYMOUS=true"):
        load_config(image, {})
    config = load_config(image | {"CURLEW_INSECURE_ANONYMOUS": "true"}, {})
    assert str(config.data_dir) in {
        rest for keyword, rest in instructions(dockerfile) if keyword == "VOLUME"
    }
    assert ("EXPOSE", str(config.port)) in set(instructions(dockerfile))


HARDENED: dict[str, object] = {
    "read_only": True,
    "tmpfs": ["/tmp"],
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
}
"""Of the node's container: it writes to its volume only."""
COMPOSE = (REPOSITORY / "compose.yaml").read_text()


def faults_of(text: str, image: dict[str, str]) -> list[str]:
    """What is wrong with a compose file for this image."""
    document: dict[str, Any] = yaml.safe_load(text)
    found = [
        f"{name}: {fault}"
        for name, service in document["services"].items()
        for fault in faults_of_service(service, document)
    ]
    return [*found, *faults_of_node(document["services"]["curlew"], image)]


def faults_of_service(service: dict[str, Any], document: dict[str, Any]) -> Iterator[str]:
    if "build" not in service:
        if not re.search(r":\d+\.\d+", service["image"]):
            yield "its image has no version"
        if "healthcheck" not in service:
            yield "no health check"
    if service.get("restart") != "unless-stopped":
        yield "is not started again"
    for volume in service["volumes"]:
        if volume.partition(":")[0] not in document["volumes"]:
            yield f"{volume} is no named volume"
    for needed, how in service.get("depends_on", {}).items():
        if needed not in document["services"] or how != {"condition": "service_healthy"}:
            yield f"does not wait for {needed}"


def faults_of_node(node: dict[str, Any], image: dict[str, str]) -> Iterator[str]:
    if f"curlew-data:{image['CURLEW_DATA_DIR']}" not in node["volumes"]:
        yield "the data directory is on no volume"
    try:
        config = load_config(image | node["environment"], {})
    except ConfigError as error:
        yield str(error)
        return
    for setting, value in HARDENED.items():
        if node.get(setting) != value:
            yield f"{setting} is not {value}"
    if node["ports"] != [f"127.0.0.1:{DEFAULT_PORT}:{config.port}"]:
        yield "its port is not that of the node, or open to other machines"


def test_compose_starts_what_the_image_needs(dockerfile: str) -> None:
    assert faults_of(COMPOSE, environment_of(dockerfile)) == []


@pytest.mark.parametrize(
    ("right", "wrong", "fault"),
    [
        ("postgres:17.6-bookworm", "postgres:latest", "no version"),
        ("healthcheck:", "labels:", "no health check"),
        ("127.0.0.1:8710:8710", "8710:8710", "open to other machines"),
        ("CURLEW_DATABASE_URL", "CURLEW_DATABASE", "is not a setting"),
        ("CURLEW_INSECURE_ANONYMOUS", "CURLEW_AUTO_CREATE_TOPICS", "in clear"),
        ("curlew-data:/data", "curlew-data:/var/data", "on no volume"),
        ("postgres-data:/var", "./postgres:/var", "no named volume"),
        ("service_healthy", "service_started", "does not wait"),
        ("read_only: true", "read_only: false", "read_only is not True"),
        ("[ALL]", "[NET_RAW]", "cap_drop is not"),
    ],
)
def test_a_fault_of_compose_would_be_noticed(
    dockerfile: str, right: str, wrong: str, fault: str
) -> None:
    assert right in COMPOSE
    faults = faults_of(COMPOSE.replace(right, wrong), environment_of(dockerfile))
    assert any(fault in each for each in faults), faults


def test_the_image_has_the_version_of_the_program() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert yaml.safe_load(COMPOSE)["services"]["curlew"]["image"] == f"curlew:{project['version']}"


def test_the_password_is_the_operators() -> None:
    services = yaml.safe_load(COMPOSE)["services"]
    given = services["postgres"]["environment"]["POSTGRES_PASSWORD"]
    assert re.fullmatch(r"\$\{POSTGRES_PASSWORD:\?.+\}", given)
    url = services["curlew"]["environment"]["CURLEW_DATABASE_URL"]
    assert url == f"postgresql://curlew:{given}@postgres/curlew"


def test_nothing_of_the_image_needs_a_shell(dockerfile: str) -> None:
    last_stage = dockerfile.rpartition("\nFROM ")[2]
    for keyword, rest in instructions(last_stage):
        if keyword in {"ENTRYPOINT", "CMD", "HEALTHCHECK"}:
            assert json.loads(rest.partition("CMD ")[2] or rest), keyword
        assert keyword != "RUN"
