"""Control-plane routes: translate, call broker or metadata, translate back."""
