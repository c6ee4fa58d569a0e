"""What `deploy/` starts of a cluster is held to the settings of nodes, and to each other."""

import configparser
import re
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from app.commands.server_words import parser_of
from app.config import Config, load_config
from tests.unit.test_dockerfile import COMPOSE as LONE_NODE
from tests.unit.test_dockerfile import HARDENED, REPOSITORY, environment_of

COMPOSE = (REPOSITORY / "deploy/cluster/compose.yaml").read_text()
UNIT = (REPOSITORY / "deploy/systemd/curlew@.service").read_text()
PAGE = (REPOSITORY / "docs/running/systemd.md").read_text()
NODES = ("a", "b", "c")
FILES = (
    "database_url_file",
    "cluster_secret_file",
    "cluster_tls_cert_file",
    "cluster_tls_key_file",
    "cluster_tls_ca_file",
)
"""Settings that the unit gives as credentials."""


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE)["services"]
    return found


@pytest.fixture(scope="module")
def configs(services: dict[str, Any]) -> dict[str, Config]:
    """Of each of our containers, as the image and the file set it."""
    image = environment_of((REPOSITORY / "Dockerfile").read_text())
    return {
        name: load_config(image | services[name]["environment"], {}, listens=name in NODES)
        for name in (*NODES, "migrate")
    }


def test_each_node_has_a_shard_and_tells_where_it_is(
    services: dict[str, Any], configs: dict[str, Config]
) -> None:
    for name in NODES:
        config = configs[name]
        assert config.shard == name
        listens = int(config.cluster_listen.rpartition(":")[2])
        reached = urlsplit(config.cluster_url)
        assert (reached.hostname, reached.port) == (name, listens)
        outside = urlsplit(config.advertise_url).port
        assert services[name]["ports"] == [f"127.0.0.1:{outside}:{config.port}"]
        assert services[name]["volumes"] == [f"{name}-data:{config.data_dir}"]
        assert config.cluster_secret_file == Path("/run/secrets/cluster-secret")
    assert len({config.advertise_url for config in configs.values()}) == len(NODES) + 1


def test_nodes_start_once_the_database_has_its_schema(services: dict[str, Any]) -> None:
    for name in NODES:
        assert services[name]["depends_on"] == {
            "migrate": {"condition": "service_completed_successfully"}
        }
        assert parser_of().parse_args(services[name]["command"]).command == "serve"
    migrating = services["migrate"]
    assert parser_of().parse_args(migrating["command"]).command == "migrate"
    assert migrating["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    urls = {services[name]["environment"]["CURLEW_DATABASE_URL"] for name in (*NODES, "migrate")}
    assert len(urls) == 1


def test_containers_are_as_that_of_a_lone_node(services: dict[str, Any]) -> None:
    lone = yaml.safe_load(LONE_NODE)["services"]
    for name in (*NODES, "migrate"):
        assert services[name]["image"] == lone["curlew"]["image"]
        assert {key: services[name][key] for key in HARDENED} == HARDENED
    database = dict(lone["postgres"])
    assert services["postgres"] == database


def test_all_that_is_named_is_there() -> None:
    document = yaml.safe_load(COMPOSE)
    volumes = {
        volume.partition(":")[0]
        for service in document["services"].values()
        for volume in service.get("volumes", [])
    }
    assert volumes == document["volumes"].keys()
    assert document["services"]["a"]["secrets"] == [*document["secrets"]]
    assert (REPOSITORY / "deploy/cluster" / document["services"]["a"]["build"]).resolve() == (
        REPOSITORY
    )


def test_the_unit_of_a_cluster_starts_a_node() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(UNIT)
    command = shlex.split(unit["Service"]["ExecStart"])
    assert parser_of().parse_args(command[1:]).command == "serve"
    text = UNIT.replace("%i", "east-1").replace("%d", "/run/credentials")
    environment = dict(re.findall(r"^Environment=(\w+)=(.*)$", text, re.MULTILINE))
    example = re.search(r"```text title=\"/etc/curlew/east-1.env\"\n(.*?)```", PAGE, re.DOTALL)
    assert example
    environment |= dict(re.findall(r"^(CURLEW_\w+)=(.*)$", example[1], re.MULTILINE))
    database = environment.pop("CURLEW_DATABASE_URL_FILE")
    config = load_config(environment, {})
    assert config.shard == "east-1"
    assert config.data_dir == Path("/var/lib/curlew/east-1")
    assert config.has_cluster_tls
    credentials = dict(re.findall(r"^LoadCredential=([^:]+):(\S+)$", UNIT, re.MULTILINE))
    given = [getattr(config, name) or Path(database) for name in FILES]
    assert [file.name for file in given] == list(credentials)
    assert all(path == f"/etc/curlew/{name}" for name, path in credentials.items())
    for path in credentials.values():
        assert path in PAGE, "the page says what belongs there"


def test_the_units_of_nodes_differ_in_what_is_of_a_cluster_only() -> None:
    found = re.search(r"```ini\n(.*?)```", PAGE, re.DOTALL)
    assert found

    def common(text: str) -> list[str]:
        kept = re.findall(r"^\w+=.*$", text, re.MULTILINE)
        told = ("Environment", "LoadCredential", "Description", "ExecStart", "StateDirectory=")
        return [line for line in kept if not line.startswith(told)]

    assert common(UNIT) == common(found[1])
