"""Answers of the control plane that may have thousands of rows: made on a thread.

Making such a document and writing it as JSON takes some ten microseconds a row, in which nobody
else would be served.
"""

import asyncio
from collections.abc import Callable
from typing import ParamSpec

from fastapi import Response
from pydantic import BaseModel

from app.api.http.json_line import JsonLine
from app.api.naming.request_namespace import current_namespace

_Parts = ParamSpec("_Parts")


async def answer_of(
    make: Callable[_Parts, BaseModel], *parts: _Parts.args, **named: _Parts.kwargs
) -> Response:
    """The document that `make` gives, as FastAPI would answer it. Nobody changes the `parts`."""

    def written() -> str:
        document = make(*parts, **named)
        if current_namespace():
            return bytes(JsonLine(document.model_dump(mode="json", by_alias=True)).body).decode()
        return document.model_dump_json(by_alias=True) + "\n"  # as `JsonLine` does

    return Response(await asyncio.to_thread(written), media_type="application/json")
