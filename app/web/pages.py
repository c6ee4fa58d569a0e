"""The pages' routes. Event loop only; a request reads memory and renders, it never waits.

Addresses are made from the path under which the application is mounted, so the pages work behind a
proxy that adds a prefix.
"""

from gettext import NullTranslations
from http import HTTPStatus
from typing import Final

from jinja2 import Environment
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from app.domain.clock import Clock
from app.web.assets import packaged_assets
from app.web.headers import SecurityHeaders
from app.web.ports import Metadata, TopicEnds
from app.web.rendering import build_templates
from app.web.views import topics_page

KEPT_FOR_EVER: Final = "private, max-age=31536000, immutable"


def build_web(
    topic_ends: TopicEnds,
    metadata: Metadata,
    clock: Clock,
    translations: NullTranslations | None = None,
) -> Starlette:
    """The application to mount at `/ui`."""
    assets = packaged_assets()
    site = _Site(topic_ends, metadata, clock, build_templates(assets, translations or _ENGLISH))

    async def asset(request: Request) -> Response:
        found = assets.find(request.path_params["name"])
        if found is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        return Response(
            found.content, media_type=found.media_type, headers={"Cache-Control": KEPT_FOR_EVER}
        )

    return Starlette(
        routes=[Route("/", site.topics), Route("/static/{name}", asset)],
        middleware=[Middleware(SecurityHeaders)],
        exception_handlers={HTTPException: site.error},
    )


_ENGLISH: Final = NullTranslations()


class _Site:
    """The pages. Holds no state of its own."""

    def __init__(
        self, topic_ends: TopicEnds, metadata: Metadata, clock: Clock, templates: Environment
    ) -> None:
        self._topic_ends = topic_ends
        self._metadata = metadata
        self._clock = clock
        self._templates = templates

    async def topics(self, request: Request) -> Response:
        page = topics_page(
            self._metadata.snapshot,
            self._topic_ends,
            prefix=request.query_params.get("prefix", ""),
            after=request.query_params.get("after", ""),
        )
        return self._page(request, "topics.html", HTTPStatus.OK, {"page": page})

    async def error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        status = HTTPStatus(error.status_code)
        response = self._page(request, "error.html", status, {"status": status})
        response.headers.update(error.headers or {})
        return response

    def _page(
        self, request: Request, template: str, status: HTTPStatus, values: dict[str, object]
    ) -> Response:
        scope = request.scope
        node_root = scope.get("app_root_path", "")
        text = self._templates.get_template(template).render(
            values,
            root=scope.get("root_path", ""),
            api=f"{node_root}/v1",
            openapi=f"{node_root}/openapi.json",
            origin=f"{request.url.scheme}://{request.url.netloc}",
            now_ms=self._clock.now_ms(),
        )
        return HTMLResponse(text, status)
