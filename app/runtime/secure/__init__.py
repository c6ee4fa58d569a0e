"""Keys and certificates that operators keep in files: read with care, never shown."""
