"""`/docs`: the operations of the OpenAPI document as one HTML page, without scripts. Pure."""

from html import escape
from typing import Any

_STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
code{font:13px ui-monospace,monospace}summary{cursor:pointer;padding:.3rem 0}
b{display:inline-block;width:4.5rem}table{border-collapse:collapse;margin:.5rem 0}
td,th{border-bottom:1px solid #8884;padding:.2rem .8rem .2rem 0;text-align:left;vertical-align:top}
:root{color-scheme:light dark}"""

Json = dict[str, Any]


def docs_page(document: Json) -> str:
    """The page. Everything from the document is escaped."""
    info = document["info"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        f"<title>{escape(info['title'])}</title><style>{_STYLE}</style>",
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
        f"<p>{escape(info['description'])}</p>",
        "<p><a href=/openapi.json>openapi.json</a> · <a href=/v1/error-codes>error codes</a> · "
        "<a href=/v1/limits>limits</a></p>",
    ]
    shared = document["components"]["responses"]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts.append(_operation(method.upper(), path, operation, shared))
    return "\n".join(parts)


def _operation(method: str, path: str, operation: Json, shared: Json) -> str:
    rows = [_row(p["name"], p["in"], p.get("description", "")) for p in operation["parameters"]]
    bodies = operation.get("requestBody", {}).get("content", {})
    rows += [_row(media_type, "body", "") for media_type in bodies]
    rows += [
        _row(status, "answer", _described(answer, shared))
        for status, answer in operation["responses"].items()
    ]
    return (
        f"<details id={escape(operation['operationId'])}><summary><b>{method}</b>"
        f"<code>{escape(path)}</code> — {escape(operation['summary'])}</summary>"
        f"<p>{escape(operation.get('description', ''))}</p><table>{''.join(rows)}</table></details>"
    )


def _described(answer: Json, shared: Json) -> str:
    name = answer.get("$ref", "").rpartition("/")[2]
    description: str = (shared[name] if name else answer)["description"]
    return description


def _row(name: str, kind: str, description: str) -> str:
    return f"<tr><td><code>{escape(name)}</code><td>{escape(kind)}<td>{escape(description)}</tr>"
