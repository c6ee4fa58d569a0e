"""The bytes of small and derived files."""
