"""Tests of `app.domain.access`."""
