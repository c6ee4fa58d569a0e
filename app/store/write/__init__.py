"""Appending: assigning offsets, writing, making visible."""
