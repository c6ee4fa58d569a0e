"""The pages at `/ui`: server-rendered, one stylesheet, no build step.

Like `app.api` it translates and decides nothing, and uses the same broker. `build_web` gives an
ASGI application for the composition root to mount; nothing deeper is public.
"""

from app.web.pages import build_web

__all__ = ["build_web"]
