"""Nouns and rules of messaging. Standard library only: no I/O, no clock reads, no logging."""
