"""Signed handles and cursors that a client gives back."""
