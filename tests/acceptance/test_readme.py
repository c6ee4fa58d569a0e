"""What the README and the banner tell a new user to paste, pasted."""

import json
import re
import subprocess
from pathlib import Path

from tests.support.node import ROOT, RunningNode, run_node

FENCE = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECONDS = 30


def curl_blocks() -> list[str]:
    """Every code block of the README that is made of curl lines."""
    blocks = FENCE.findall((ROOT / "README.md").read_text())
    return [block for block in blocks if block.startswith("curl")]


def paste(lines: str, node: RunningNode, directory: Path) -> str:
    """Run lines in a shell as a user would; what they printed."""
    lines = lines.replace("localhost:8710", f"127.0.0.1:{node.port}")
    lines = lines.replace("curl ", "curl --fail-with-body -sS ")
    done = subprocess.run(
        ["/bin/bash", "-euc", lines],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{lines}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_every_curl_line_of_the_readme_works(tmp_path: Path) -> None:
    blocks = curl_blocks()
    assert len(blocks) >= 6
    handle = ""
    with run_node(tmp_path / "data") as node:
        for block in blocks:
            if "format=raw" in block:
                paste(blocks[1], node, tmp_path)  # something to receive
            printed = paste(block.replace("<receipt_handle>", handle), node, tmp_path)
            if "receipt_handle" in printed:
                handle = json.loads(printed)["messages"][0]["receipt_handle"]
    assert handle
    assert "mq-receipt-handle" in (tmp_path / "headers.txt").read_text().lower()


def test_the_curl_lines_of_the_banner_work(tmp_path: Path) -> None:
    with run_node(tmp_path / "data") as node:
        lines = [line.strip() for line in node.banner if line.strip().startswith("curl ")]
        assert len(lines) == 3
        printed = [paste(line, node, tmp_path) for line in lines]
    assert "201 Created" in printed[0]
    assert json.loads(printed[1])["depth"] == 1
    assert json.loads(printed[2])["messages"][0]["text"] == '{"id":17}'
