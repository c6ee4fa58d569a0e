"""Makes the connector and the example importable from their folders, installed or not.

For child processes too: Spark's Python workers, and the commands that tests run.
"""

import os
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
FOLDERS = [str(PROJECT / "src"), str(PROJECT / "examples")]

sys.path[:0] = [folder for folder in FOLDERS if folder not in sys.path]
os.environ["PYTHONPATH"] = os.pathsep.join(
    [*FOLDERS, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
)
