"""The metadata of the cluster in SQL: the one door to it."""
