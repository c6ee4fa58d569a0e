"""Clients generated from the committed document, each driven against a real node by its program.

The generated code goes to a temporary directory and is thrown away. Settings and programs are in
`clients/`; a program ends with a status of 0 when everything came back as it should.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.support.nodes.node import ROOT, RunningNode, run_node
from tests.support.whole_document import Json, with_all_answers

CLIENTS = ROOT / "clients"
DOCUMENT = ROOT / "openapi" / "openapi.json"
TYPESCRIPT = CLIENTS / "typescript"
PACKAGE = "curlew_generated"
SECONDS = 180


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with run_node(tmp_path_factory.mktemp("clients") / "data") as running:
        yield running


def run(
    *command: object, directory: Path, imports: Path | None = None
) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ)
    if imports is not None:
        environment["PYTHONPATH"] = str(imports)
    return subprocess.run(
        [*map(str, command)],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def must(*command: object, directory: Path, imports: Path | None = None) -> None:
    done = run(*command, directory=directory, imports=imports)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def generate_with_openapi_python_client(document: Path, directory: Path) -> None:
    options = ["--config", CLIENTS / "openapi-python-client" / "config.yaml", "--meta", "none"]
    command = [sys.executable, "-m", "openapi_python_client", "generate", *options]
    must(*command, "--path", document, "--output-path", PACKAGE, directory=directory)


def generate_with_openapi_generator(document: Path, directory: Path) -> None:
    program = Path(sys.executable).with_name("openapi-generator-cli")
    options = ["-c", CLIENTS / "openapi-generator" / "config.yaml"]
    must(program, "generate", "-i", document, "-o", directory, *options, directory=directory)


PYTHON = {
    "openapi-python-client": generate_with_openapi_python_client,
    "openapi-generator": generate_with_openapi_generator,
}


@pytest.mark.parametrize("generator", PYTHON)
def test_a_python_client(generator: str, node: RunningNode, tmp_path: Path) -> None:
    PYTHON[generator](DOCUMENT, tmp_path)
    program = CLIENTS / generator / "smoke.py"
    must(sys.executable, program, node.url, directory=tmp_path, imports=tmp_path)


def installed_packages() -> Path:
    """`node_modules` as the lock file says, installed once for each content of it."""
    lock = (TYPESCRIPT / "package-lock.json").read_bytes()
    place = ROOT / "build" / f"typescript-{hashlib.sha256(lock).hexdigest()[:12]}"
    packages = place / "node_modules"
    if not (packages / ".package-lock.json").exists():
        place.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(TYPESCRIPT / name, place)
        must("npm", "ci", "--no-audit", "--no-fund", directory=place)
    return packages


def typescript_of(document: Json, tmp_path: Path) -> Path:
    """The directory with the program, and the types that were made of the document."""
    (tmp_path / "openapi").mkdir()
    (tmp_path / "openapi" / "openapi.json").write_text(json.dumps(document))
    directory = tmp_path / "clients" / "typescript"
    directory.mkdir(parents=True)
    for name in ("package.json", "tsconfig.json", "smoke.ts"):
        shutil.copy(TYPESCRIPT / name, directory)
    (directory / "node_modules").symlink_to(installed_packages())
    must("npm", "run", "generate", directory=directory)
    return directory


def test_a_typescript_client(node: RunningNode, tmp_path: Path) -> None:
    directory = typescript_of(json.loads(DOCUMENT.read_text()), tmp_path)
    must("npm", "run", "compile", directory=directory)
    must("node", "compiled/smoke.js", node.url, directory=directory)


def test_answers_of_several_types_do_not_compile(tmp_path: Path) -> None:
    """Why the document says apart what is answered only when it is asked for."""
    whole = with_all_answers(json.loads(DOCUMENT.read_text()))
    done = run("npm", "run", "compile", directory=typescript_of(whole, tmp_path))
    assert done.returncode != 0
    for member in ("messages", "results", "queues"):
        assert f"Property '{member}' does not exist on type" in done.stdout


def test_a_java_client(node: RunningNode, tmp_path: Path) -> None:
    """Compiled and run with the libraries that Spark brings: they are at hand without Maven."""
    program = Path(sys.executable).with_name("openapi-generator-cli")
    settings = CLIENTS / "java" / "config.yaml"
    must(program, "generate", "-i", DOCUMENT, "-o", "java", "-c", settings, directory=tmp_path)
    jars = Path(str(pyspark.__file__)).parent / "jars"
    needed = ("jackson-*-2.*.jar", "jsr305-*.jar", "jakarta.annotation-api-*.jar")
    libraries = [str(jar) for name in needed for jar in jars.glob(name)]
    sources = [*(tmp_path / "java/src/main").rglob("*.java"), CLIENTS / "java" / "Smoke.java"]
    (tmp_path / "sources").write_text("\n".join(map(str, sources)))
    options = ["-nowarn", "-proc:none", "-d", "out", "-cp", os.pathsep.join(libraries)]
    must("javac", *options, "@sources", directory=tmp_path)
    must("java", "-cp", os.pathsep.join(["out", *libraries]), "Smoke", node.url, directory=tmp_path)


def test_a_go_client(node: RunningNode, tmp_path: Path) -> None:
    """Built with Go's own library alone: what is generated needs no other."""
    program = Path(sys.executable).with_name("openapi-generator-cli")
    settings = CLIENTS / "go" / "config.yaml"
    must(program, "generate", "-i", DOCUMENT, "-o", "curlew", "-c", settings, directory=tmp_path)
    shutil.rmtree(tmp_path / "curlew" / "test")  # it needs a library
    (tmp_path / "go.mod").write_text("module smoke\n\ngo 1.19\n")
    shutil.copy(CLIENTS / "go" / "smoke.go", tmp_path)
    must("go", "build", "-o", "smoke", ".", directory=tmp_path)
    must("./smoke", node.url, directory=tmp_path)


def test_a_document_that_is_wrong_is_noticed(node: RunningNode, tmp_path: Path) -> None:
    document = json.loads(DOCUMENT.read_text())
    view = document["components"]["schemas"]["MessageView"]
    view["properties"]["identifier"] = view["properties"].pop("message_id")
    view["required"] = [name for name in view["required"] if name != "message_id"]
    falsified = tmp_path / "openapi.json"
    falsified.write_text(json.dumps(document))
    generate_with_openapi_python_client(falsified, tmp_path)
    program = CLIENTS / "openapi-python-client" / "smoke.py"
    done = run(sys.executable, program, node.url, directory=tmp_path, imports=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "has no attribute 'message_id'" in done.stderr


def test_the_lock_file_names_no_registry() -> None:
    lock = json.loads((TYPESCRIPT / "package-lock.json").read_text())
    packages = [each for name, each in lock["packages"].items() if name]
    assert packages
    assert not [each for each in packages if "resolved" in each]
    assert all(each["integrity"].startswith("sha512-") for each in packages)
