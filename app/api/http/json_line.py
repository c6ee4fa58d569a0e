"""JSON answers of the control plane."""

from starlette.responses import JSONResponse
from typing_extensions import override

from app.api.naming.request_namespace import shown_document


class JsonLine(JSONResponse):
    """JSON that ends with a line feed, as the data plane's answers do, with names as the request's
    own clients call them."""

    @override
    def render(self, content: object) -> bytes:
        return super().render(shown_document(content)) + b"\n"
