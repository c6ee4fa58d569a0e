"""Filters of messages: tags, SQL expressions, exact texts."""
