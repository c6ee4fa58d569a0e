"""The log as replicas exchange it: whole blocks to read and to take, what is cut, what is kept."""
