"""Requests at and beyond every bound of the API, made from the OpenAPI document."""
