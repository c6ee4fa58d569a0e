"""Spans of sends, receives and settles; imported where OpenTelemetry is on."""
