"""`/docs`: the operations of the OpenAPI document as one HTML page with a search. Pure.

The page is whole without its script, which hides the operations that a search does not name, and
gives each a form to try it on this node.
Style and script are files of this node, so that the policy of the answer allows nothing inline.
Addresses are relative to `/docs`: the page works behind a proxy that adds a prefix.
"""

import json
import re
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy of the page, that of `/ui`: nothing inline, nothing from elsewhere."""

STATIC: Final = "docs/static/"
"""Where the page's files are, relative to the root of the node."""


class PageFile(NamedTuple):
    """A file that the page loads."""

    content: bytes
    media_type: str


_CODE: Final = re.compile(r"`([^`]+)`")

Json = dict[str, Any]


def docs_page(document: Json) -> str:
    """The page. Everything from the document is escaped."""
    info = document["info"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        '<meta name=viewport content="width=device-width">',
        f"<title>{escape(info['title'])}</title>",
        f"<link rel=icon href={STATIC}docs_page.svg>",
        f"<link rel=stylesheet href={STATIC}docs_page.css>",
        f"<script src={STATIC}docs_page.js defer></script>",
        f"<main><h1>{escape(info['title'])} {escape(info['version'])}</h1>",
        f"<p>{_text(info['description'])}</p>",
        "<p><a href=openapi.json>openapi.json</a> · <a href=v1/error-codes>error codes</a> · "
        "<a href=v1/limits>limits</a> · <a href=ui/>topics</a></p>",
        '<form hidden><input type=search placeholder="Search: receive, 507, MQ-Tag …" '
        'aria-label="Search the operations"> <output></output></form>',
    ]
    shared = document["components"]["responses"]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts.append(_operation(method.upper(), path, operation, shared))
    parts.append("</main></html>")
    return "\n".join(parts)


def page_files() -> dict[str, PageFile]:
    """The files that the page loads, by name. Blocks."""
    here = Path(__file__)
    return {
        f"docs_page.{suffix}": PageFile(here.with_suffix(f".{suffix}").read_bytes(), media_type)
        for suffix, media_type in (
            ("css", "text/css; charset=utf-8"),
            ("js", "text/javascript; charset=utf-8"),
            ("svg", "image/svg+xml"),
        )
    }


def _operation(method: str, path: str, operation: Json, shared: Json) -> str:
    rows = [
        _row(p["name"], p["in"], _text(p.get("description", ""))) for p in operation["parameters"]
    ]
    bodies = operation.get("requestBody", {}).get("content", {})
    rows += [_row(name, "body", escape(_example(body))) for name, body in bodies.items()]
    rows += [
        _row(status, "answer", _text(_described(answer, shared)))
        for status, answer in operation["responses"].items()
    ]
    return (
        f"<details id={escape(operation['operationId'])}><summary><b>{method}</b>"
        f"<code>{escape(path)}</code> — {_text(operation['summary'])}</summary>"
        f"<p>{_text(operation.get('description', ''))}</p><table>{''.join(rows)}</table></details>"
    )


def _example(body: Json) -> str:
    """The first example of a body; empty without one."""
    for example in body.get("examples", {}).values():
        value = example.get("value")
        return value if isinstance(value, str) else json.dumps(value, indent=2)
    return ""


def _described(answer: Json, shared: Json) -> str:
    name = answer.get("$ref", "").rpartition("/")[2]
    description: str = (shared[name] if name else answer)["description"]
    return description


def _row(name: str, kind: str, described: str) -> str:
    """`described` is HTML."""
    return f"<tr><td><code>{escape(name)}</code><td>{escape(kind)}<td>{described}</tr>"


def _text(described: str) -> str:
    """What stands between backticks is code; all of it is escaped."""
    return _CODE.sub(r"<code>\1</code>", escape(described))
