"""Filter expressions over messages: tags, and SQL92 conditions over properties."""
