"""The page and the picture of what the demo found."""
