"""Streams of Spark over the flights: counts, windows, the join."""
