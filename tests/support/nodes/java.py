"""Java for programs that live for seconds: Spark's driver, executors and daemons in tests."""

import os

_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Compile once, and quickly. What a second compiler makes of hot code comes too late here: its work
was a quarter of these tests' time on two cores."""


def start_java_quickly() -> None:
    """For every Java that this process and its children start, unless the environment says more."""
    os.environ.setdefault("JDK_JAVA_OPTIONS", _OPTIONS)
