"""Ways in and out: sign-in, preferences, and the JSON behind the pages."""
