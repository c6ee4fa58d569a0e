"""Requests and answers over HTTP: parameters, packing, conditions, budgets."""
