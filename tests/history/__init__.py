"""Histories of groups, and of topics made again: recorded by clients under faults, then judged."""
