"""The metadata of the cluster in SQL. `metadata.Metadata` is its only entry point."""
