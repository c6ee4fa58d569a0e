"""Texts that a client gives back: receipt and recall handles (signed), cursors (not signed)."""
