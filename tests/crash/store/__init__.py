"""Kills, flips, power cuts and full disks of a store."""
