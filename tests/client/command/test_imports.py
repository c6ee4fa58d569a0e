"""`import curlew_client` is cheap: nothing is loaded before it is used, and every name is there."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import curlew_client
import pytest
from curlew_client.command import entry

SHOW_LOADED = "import sys, curlew_client; print(*sys.modules)"


def test_the_import_loads_nothing_of_it() -> None:
    shown = subprocess.run(
        [sys.executable, "-I", "-c", SHOW_LOADED], capture_output=True, text=True, check=True
    )
    loaded = set(shown.stdout.split())
    assert "curlew_client" in loaded
    assert not loaded & {"asyncio", "json", "ssl", "httpx", "logging"}
    assert [name for name in loaded if name.startswith("curlew_client.")] == []


def test_a_client_is_there_without_httpx() -> None:
    code = "import sys, curlew_client; curlew_client.Client; print('httpx' in sys.modules)"
    shown = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert shown.stdout == "False\n"


def test_a_command_loads_no_more_than_it_needs() -> None:
    code = "import sys, curlew_client.command.resources.lags; print(*sys.modules)"
    shown = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(shown.stdout.split())
    assert not loaded & {"asyncio", "ssl", "zstandard", "gzip", "httpx", "rich.live"}
    assert not loaded & {"curlew_client.session", "curlew_client.hooks"}


def test_the_version_is_told_without_reading_what_is_installed() -> None:
    code = (
        "import sys; from curlew_client.command.entry import main; main(['--version']);"
        "print('importlib.metadata' in sys.modules)"
    )
    shown = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert shown.stdout == f"curlew {version('curlew')}\nFalse\n"


def test_without_the_server_the_version_is_the_clients(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(entry, "_version_by_folder", {"curlew_client": "7.5"}.get)
    assert entry.main(["--version"]) == 0
    assert capsys.readouterr().out == "curlew-client 7.5\n"


def test_a_folder_tells_the_version_of_its_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("curlew_client-2.0.dist-info", "curlew-3.1.dist-info"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "none"), str(tmp_path)])
    found = [entry._version_by_folder(name) for name in ("curlew", "curlew_client", "other")]
    assert found == ["3.1", "2.0", None]


@pytest.mark.parametrize("name", curlew_client.__all__)
def test_each_name_is_there(name: str) -> None:
    assert getattr(curlew_client, name).__module__.startswith("curlew_client.")


def test_another_name_is_not() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Klient'"):
        _ = curlew_client.Klient  # type: ignore[attr-defined]
    assert {*curlew_client.__all__} <= {*dir(curlew_client)}
