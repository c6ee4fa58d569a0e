"""The texts of the pages: which there are, by folder, and which of them a language has.

`python -m tests.support.translations.ui_messages` adds to the `.po` files what is missing there,
with an empty translation, and takes out what no page says any more.
"""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from jinja2 import Environment

from app.web.rendering.languages import LANGUAGES, read_po
from tests.support.translations.ui_api_texts import api_texts

WEB: Final = Path(__file__).parents[3] / "app" / "web"
FILE_OF: Final = {"frame": "frame", "entrance": "frame", "serving": "frame", "rendering": "frame"}
"""Folders whose texts stand in another's file."""
_CALLS: Final = frozenset({"gettext", "ngettext", "_"})
_HEAD: Final = (
    'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
    '"Plural-Forms: nplurals=1; plural=0;\\n"\n'
)

Message = tuple[str, str]
"""Singular and plural; an empty plural: there is none."""


@cache
def messages() -> dict[str, dict[Message, None]]:
    """File of translations → what it has to translate, in the order of the sources."""
    found: dict[str, dict[Message, None]] = {}
    for path in sorted((WEB / "templates").rglob("*.html")):
        entries = found.setdefault(_file_of(path.parent.name), {})
        entries.update(dict.fromkeys(_in_template(path.read_text())))
    for path in sorted(WEB.rglob("*.py")):
        folder = "frame" if path.parent == WEB else path.parent.name
        entries = found.setdefault(_file_of(folder), {})
        entries.update(dict.fromkeys(_in_module(path.read_text())))
    found["api"] = dict.fromkeys((text, "") for text in api_texts())
    return {name: entries for name, entries in found.items() if entries}


def po_path(language: str, name: str) -> Path:
    """Where the translations are."""
    return WEB / "locale" / language / f"{name}.po"


def translated(language: str, name: str) -> dict[str, str]:
    """What of them is there."""
    path = po_path(language, name)
    return read_po(path.read_text()) if path.exists() else {}


def _file_of(folder: str) -> str:
    return FILE_OF.get(folder, folder)


def _in_template(text: str) -> Iterator[Message]:
    environment = Environment(extensions=["jinja2.ext.i18n", "jinja2.ext.do"])
    environment.policies["ext.i18n.trimmed"] = True
    found = environment.extract_translations(text)  # type: ignore[attr-defined]  # of the extension
    for _line, _function, said in found:
        if isinstance(said, str):
            yield said, ""
        elif said is not None and said[0] is not None:
            yield str(said[0]), str(said[1] or "")


def _in_module(text: str) -> Iterator[Message]:
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        given = node.args if name in _CALLS else []
        if name == "Family":
            given = [each.value for each in node.keywords if each.arg in {"label", "section"}]
        texts = [each.value for each in given if isinstance(each, ast.Constant)]
        words = [each for each in texts if isinstance(each, str) and each]
        if name == "ngettext" and len(words) == 2:
            yield words[0], words[1]
        else:
            yield from ((each, "") for each in words)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _entry(message: Message, translation: str) -> str:
    one, many = message
    if many:
        lines = [f"msgid {_quoted(one)}", f"msgid_plural {_quoted(many)}"]
        return "\n".join([*lines, f"msgstr[0] {_quoted(translation)}"])
    return f"msgid {_quoted(one)}\nmsgstr {_quoted(translation)}"


def write() -> int:
    """Bring the files up to date; how many translations are missing."""
    missing = 0
    for language in LANGUAGES:
        if language == "en":
            continue
        for name, entries in messages().items():
            known = translated(language, name)
            missing += sum(not known.get(one) for one, _ in entries)
            texts = [_entry(each, known.get(each[0], "")) for each in entries]
            po_path(language, name).write_text("\n".join([_HEAD, *(f"{t}\n" for t in texts)]))
    return missing


if __name__ == "__main__":
    print(f"{write()} texts have no translation", file=sys.stderr)
