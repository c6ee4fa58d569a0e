"""`register` says when Spark's Python workers will not find this package."""

import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark_curlew import CurlewDataSource, register


class Session:
    """As much of a SparkSession as `register` looks at."""

    def __init__(self, python: str, master: str = "local[2]") -> None:
        self.registered: list[object] = []
        self.dataSource = SimpleNamespace(register=self.registered.append)
        self.sparkContext = SimpleNamespace(master=master, pythonExec=python)


class ConnectSession:
    """A session of Spark Connect has no context."""

    def __init__(self) -> None:
        self.registered: list[object] = []
        self.dataSource = SimpleNamespace(register=self.registered.append)


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A virtual environment that runs this, with a `python3`; another `python3` is in the PATH."""
    for folder in ("here", "elsewhere"):
        python = tmp_path / folder / "bin" / "python3"
        python.parent.mkdir(parents=True)
        python.touch(0o755)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "here"))
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    monkeypatch.setenv("PATH", str(tmp_path / "elsewhere" / "bin"))
    return tmp_path / "here"


def registered(session: Session | ConnectSession) -> list[str]:
    """What `register` warned of; it registers all the same."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        register(session)  # type: ignore[arg-type]
    assert session.registered == [CurlewDataSource]
    return [str(each.message) for each in caught]


@pytest.mark.parametrize(
    ("python", "found"), [("python3", "{}/elsewhere/bin/python3"), ("python9", "(not found)")]
)
def test_another_python_is_said_with_what_to_do(environment: Path, python: str, found: str) -> None:
    (said,) = registered(Session(python))
    assert found.format(environment.parent) in said
    assert f"PYSPARK_PYTHON={sys.executable}" in said
    assert str(environment) in said


def test_the_environment_s_own_is_right(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert registered(Session(str(environment / "bin" / "python3"))) == []
    monkeypatch.chdir(environment)
    assert registered(Session("bin/python3")) == []
    monkeypatch.setenv("PATH", str(environment / "bin"))
    assert registered(Session("python3")) == []


@pytest.mark.usefixtures("environment")
def test_workers_that_are_elsewhere_are_not_judged() -> None:
    assert registered(Session("python3", master="spark://somewhere:7077")) == []
    assert registered(ConnectSession()) == []


@pytest.mark.usefixtures("environment")
def test_without_a_virtual_environment_there_is_nothing_to_compare(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    assert registered(Session("python3")) == []
