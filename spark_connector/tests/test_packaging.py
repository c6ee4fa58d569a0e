"""The wheel: what a user gets from `pip install ./spark_connector`."""

import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*command, "--quiet", "--wheel-dir", str(folder), str(PROJECT)],
        check=True,
        capture_output=True,
    )
    (built,) = folder.glob("pyspark_curlew-*-py3-none-any.whl")
    return zipfile.ZipFile(built)


def test_it_holds_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    names = [name for name in wheel.namelist() if ".dist-info/" not in name]
    root = PROJECT / "src" / "pyspark_curlew"
    sources = [str(path.relative_to(root)) for path in root.rglob("*")]
    expected = sorted(name for name in sources if name.endswith((".py", ".typed")))
    assert sorted(names) == [f"pyspark_curlew/{name}" for name in expected]


def test_it_needs_no_spark_and_no_server(wheel: zipfile.ZipFile) -> None:
    (path,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
    metadata = message_from_bytes(wheel.read(path))
    assert metadata["Name"] == "pyspark-curlew"
    required = [text for text in metadata.get_all("Requires-Dist", []) if "extra ==" not in text]
    names = {text.split(">=")[0] for text in required}
    assert names == {"pyarrow", "numpy", "isal"}


def test_no_source_imports_the_server(wheel: zipfile.ZipFile) -> None:
    for name in wheel.namelist():
        if name.endswith(".py"):
            text = wheel.read(name).decode()
            assert "import app" not in text, name
            assert "from app" not in text, name
