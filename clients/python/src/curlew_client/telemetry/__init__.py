"""Hooks that tell others what a client does: spans of OpenTelemetry, and lines of a log."""
