"""Topics and groups from their making to their deletion, and room for their names."""
