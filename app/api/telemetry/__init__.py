"""Figures and the log of requests."""
