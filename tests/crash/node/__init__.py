"""Kills of a whole node at its work."""
