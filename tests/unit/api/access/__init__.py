"""Tests of `app.api.access`."""
