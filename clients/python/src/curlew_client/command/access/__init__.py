"""Commands for who may do what."""
