"""Plug-ins of a node: found by entry points, called on threads of their own, within a budget."""
