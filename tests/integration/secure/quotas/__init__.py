"""Quotas, over HTTP."""
