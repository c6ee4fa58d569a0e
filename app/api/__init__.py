"""The HTTP layer: translates requests into broker calls, results into bytes. Decides nothing.

`build_api` gives the ASGI application to the composition root; `render_document` the OpenAPI text;
`Credentials` ask for keys.
"""

from app.api.access.credentials import Credentials
from app.api.app_factory import build_api
from app.api.document.openapi import render_document

__all__ = ["Credentials", "build_api", "render_document"]
