"""Every line of the page of the command line runs against a node."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.nodes.node import ROOT, RunningNode

PAGE = (ROOT / "docs" / "clients" / "command-line.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_lines_of_the_page(
    node: RunningNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CURLEW_URL", node.url)
    assert len(BLOCKS) >= 4
    for block in BLOCKS:
        done = subprocess.run(
            ["/bin/bash", "-euo", "pipefail", "-c", block],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
