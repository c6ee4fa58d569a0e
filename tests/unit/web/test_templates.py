"""What the sources of the pages hold to: texts go through gettext, nothing is inline or unescaped,
what others wrote is as they published it."""

import hashlib
import re
import tomllib
from pathlib import Path
from typing import Final

import pytest

from app.web.rendering.languages import LANGUAGES
from tests.support.translations.ui_messages import WEB, messages, po_path, translated

TEMPLATES: Final = sorted((WEB / "templates").rglob("*.html"))
FORBIDDEN: Final = re.compile(
    r"\|\s*safe\b|autoescape|\bstyle=|<style|<script>|<script [^>]*>[^<]|\son\w+=|hx-on|\bjs:"
    r"|https?:"
)
_BLOCK: Final = re.compile(r"{%-?\s*trans\b.*?{%-?\s*endtrans\s*-?%}", re.DOTALL)
_CODE: Final = re.compile(r"{#.*?#}|{%.*?%}|{{.*?}}", re.DOTALL)
_TAG: Final = re.compile(r"<(?:\"[^\"]*\"|'[^']*'|[^>\"'])*>")
_WORD: Final = re.compile(r"[A-Za-z]{2,}")
_NAMES: Final = frozenset({"Curlew", "nbsp", "UTC", "ms", "ID"})


def bare_words(text: str) -> set[str]:
    """Words in a template that no translation gives."""
    left = _TAG.sub(" ", _CODE.sub(" ", _BLOCK.sub(" ", text)))
    attributes = re.findall(r'\b(?:placeholder|aria-label|title|alt)="([^"]*)"', text)
    left += " ".join(_CODE.sub(" ", _BLOCK.sub(" ", each)) for each in attributes)
    without_code = re.sub(r"&\w+;", " ", left)
    return set(_WORD.findall(without_code)) - _NAMES


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_every_word_can_be_translated(path: Path) -> None:
    assert bare_words(path.read_text()) == set()


def test_a_bare_word_would_be_noticed() -> None:
    text = "<p>{% trans %}Topics{% endtrans %} forgotten</p><input placeholder='x' title=\"me\">"
    assert bare_words(text) == {"forgotten", "me"}


@pytest.mark.parametrize("language", [code for code in LANGUAGES if code != "en"])
@pytest.mark.parametrize("name", messages())
def test_every_text_has_a_translation(language: str, name: str) -> None:
    known = translated(language, name)
    missing = [one for one, _ in messages()[name] if not known.get(one)]
    assert missing == [], f"add them to {po_path(language, name)}"


@pytest.mark.parametrize("language", [code for code in LANGUAGES if code != "en"])
@pytest.mark.parametrize("name", messages())
def test_translations_have_the_places_of_the_original(language: str, name: str) -> None:
    for original, translation in translated(language, name).items():
        places = re.findall(r"%\(\w+\)s", original)
        assert set(re.findall(r"%\(\w+\)s", translation)) <= set(places), original


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_templates_have_nothing_inline_and_nothing_unescaped(path: Path) -> None:
    assert FORBIDDEN.findall(path.read_text()) == []


@pytest.mark.parametrize(
    "offence",
    [
        *("{{ name|safe }}", "<p style='x'>", "<a onclick='x'>", "<script>", "http://cdn"),
        *("<a hx-on:click='x'>", "<a hx-vals='js:x'>"),
    ],
)
def test_an_offence_in_a_template_would_be_noticed(offence: str) -> None:
    assert FORBIDDEN.search(offence)


def test_what_others_wrote_is_as_they_published_it() -> None:
    folder = WEB / "static" / "vendor"
    listed = {
        name: each["sha256"]
        for package in tomllib.loads((folder / "manifest.toml").read_text())["package"]
        for name, each in package["files"].items()
    }
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.name != "manifest.toml"
    }
    assert found == listed


def test_our_own_script_stays_small() -> None:
    lines = (WEB / "static" / "curlew.js").read_text().splitlines()
    assert len(lines) <= 150
    assert "innerHTML" not in "\n".join(lines)
