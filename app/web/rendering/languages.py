"""The languages of the pages, through gettext. English stands in the templates; every other
language has a folder of `.po` files, one for each family of pages, in `locale/`.

The files are read as they are when the node starts: there is no step that compiles them. Of PO's
syntax only what the files have is read: comments, `msgid`, `msgid_plural`, `msgstr`, `msgstr[n]`
and texts over several lines. Languages with one plural form only, as Chinese has.
"""

import ast
from collections.abc import Mapping
from functools import cache
from gettext import NullTranslations
from importlib.resources import files
from typing import Final

from typing_extensions import override

ENGLISH: Final = "en"
LANGUAGES: Final[Mapping[str, str]] = {ENGLISH: "English", "zh": "中文"}
"""Code → how the language calls itself."""


class UnreadableTranslations(Exception):
    """A line of a `.po` file is none of those that are read."""


class Translations(NullTranslations):
    """Texts by their English original; what is not there stays English."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        super().__init__()
        self.texts = texts

    @override
    def gettext(self, message: str) -> str:
        return self.texts.get(message) or message

    @override
    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        return self.texts.get(msgid1) or (msgid1 if n == 1 else msgid2)


def read_po(text: str) -> dict[str, str]:
    """Translations by original; of those with a plural, the only form. The heading is left out."""
    found: dict[str, str] = {}
    entry: dict[str, str] = {}
    field = ""
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip()  # noqa: PLW2901
        if not line or line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        if word == "msgid" and entry:
            _enter(found, entry)
            entry = {}
        if not line.startswith('"'):
            field, line = word, rest  # noqa: PLW2901
        if field not in {"msgid", "msgid_plural", "msgstr", "msgstr[0]"}:
            raise UnreadableTranslations(f"line {number}: {line}")
        entry[field] = entry.get(field, "") + str(ast.literal_eval(line))
    _enter(found, entry)
    return found


def _enter(found: dict[str, str], entry: Mapping[str, str]) -> None:
    original = entry.get("msgid", "")
    if original:
        found[original] = entry.get("msgstr") or entry.get("msgstr[0]") or ""


@cache
def packaged_translations() -> Mapping[str, NullTranslations]:
    """By language. Blocks when it is called first, at the start."""
    folder = files("app.web") / "locale"
    found: dict[str, NullTranslations] = {ENGLISH: NullTranslations()}
    for code in LANGUAGES:
        if code == ENGLISH:
            continue
        texts: dict[str, str] = {}
        for entry in (folder / code).iterdir():
            if entry.name.endswith(".po"):
                texts |= read_po(entry.read_text(encoding="utf-8"))
        found[code] = Translations(texts)
    return found


def language_of(chosen: str | None, accepted: str) -> str:
    """The language that was chosen before, or the first of `Accept-Language` that is there."""
    if chosen in LANGUAGES:
        return str(chosen)
    for part in accepted.split(","):
        code = part.partition(";")[0].strip().lower().partition("-")[0]
        if code in LANGUAGES:
            return code
    return ENGLISH
