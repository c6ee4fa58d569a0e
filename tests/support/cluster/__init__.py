"""Clusters of several nodes."""
