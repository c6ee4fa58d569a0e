"""Histories of groups, and of topics or groups made again: recorded under faults, then judged."""
