"""What stands in bodies and headers."""
