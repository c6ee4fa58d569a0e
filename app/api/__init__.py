"""The HTTP shell: translates requests into broker calls and results into bytes. Decides nothing.

`build_api` gives the ASGI application; the composition root switches its `ServingState`.
"""

from app.api.app_factory import ApiConfig, build_api
from app.api.middleware import ServingState

__all__ = ["ApiConfig", "ServingState", "build_api"]
