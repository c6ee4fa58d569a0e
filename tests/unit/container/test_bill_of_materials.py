"""`make sbom` lists what a node is made of: all that is pinned, and nothing else."""

import json
import re
import subprocess
from pathlib import Path

from tests.support.nodes.node import ROOT


def test_the_bill_has_each_pinned_library(tmp_path: Path) -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\nsbom:")[2].partition("\n\n")[0]
    command = recipe.partition("cyclonedx-py ")[2].replace("\\\n", " ").split()
    place = command.index("-o") + 1
    assert command[place] == "build/sbom.json"
    command[place] = str(tmp_path / "sbom.json")
    tool = ROOT / ".venv" / "bin" / "cyclonedx-py"
    subprocess.run([tool, *command], cwd=ROOT, check=True, capture_output=True, timeout=120)
    bill = json.loads((tmp_path / "sbom.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["name"] == "curlew"
    pinned = re.findall(
        r"^([a-z0-9-]+)==(\S+)", (ROOT / "requirements/run.txt").read_text(), re.MULTILINE
    )
    listed = {(each["name"], each["version"]) for each in bill["components"]}
    assert listed == set(pinned)
    hashed = [each["externalReferences"][0]["hashes"] for each in bill["components"]]
    assert all(hashed)
