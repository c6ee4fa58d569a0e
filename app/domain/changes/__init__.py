"""How settings change: on which terms, what is merged, what it does to those at work."""
