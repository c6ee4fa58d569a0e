"""JSON answers of the control plane."""

from starlette.responses import JSONResponse
from typing_extensions import override


class JsonLine(JSONResponse):
    """JSON that ends with a line feed, as the data plane's answers do."""

    @override
    def render(self, content: object) -> bytes:
        return super().render(content) + b"\n"
