"""Histories of consumer groups: recorded by real clients under faults, judged by a checker."""
