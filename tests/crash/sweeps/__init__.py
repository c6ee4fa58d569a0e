"""Kills, bit flips and power cuts, many in a row."""
