"""Whether Spark will find a Java it can run on; asked before anything else is done."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from flights.failures import Missing

OLDEST_JAVA: Final = 17
_ADVICE: Final = (
    f"Spark needs Java {OLDEST_JAVA} or newer (Debian: apt-get install openjdk-17-jre-headless),"
    " on PATH or named by JAVA_HOME."
)


class JavaMissing(Missing):
    """There is no Java, or one that is too old; the text says what to do."""


def require_java() -> str:
    """Return the version text of the Java that Spark will start; raise `JavaMissing`."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if command is None:
        raise JavaMissing(f"No Java was found. {_ADVICE}")
    try:
        answer = subprocess.run(
            [command, "-version"], capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaMissing(f"{command} does not run ({error}). {_ADVICE}") from error
    version = java_version(answer.stderr)
    if version is None or version < OLDEST_JAVA:
        raise JavaMissing(f"{command} is Java {version or 'of an unknown version'}. {_ADVICE}")
    return answer.stderr.splitlines()[0]


def java_version(text: str) -> int | None:
    """The major version in what `java -version` prints: 17 of "17.0.15", 8 of "1.8.0_402"."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None
