"""What the API says, in the reader's language: titles of problems, hints, and why something is so.

The API speaks English, for programs and people alike. Translations have its sentences by their
form: `{}` stands for what is filled in, and a translation has `{1}`, `{2}`, … in its place. What is
not known there is shown as the API said it. Pure.
"""

import re
from collections.abc import Callable, Sequence
from gettext import NullTranslations
from typing import Final

from app.web.rendering.languages import Translations

_PLACE: Final = re.compile(r"\{(\d+)\}")
_GAP: Final = "{}"


def translator_of(translations: NullTranslations) -> Callable[[str], str]:
    """Translates one text of the API; for English the text itself."""
    texts = translations.texts if isinstance(translations, Translations) else {}
    forms = [
        (re.compile("(.+?)".join(map(re.escape, form.split(_GAP))), re.DOTALL), translation)
        for form, translation in sorted(texts.items(), key=lambda each: -len(each[0]))
        if _GAP in form and translation
    ]

    def translate(text: str) -> str:
        if known := texts.get(text):
            return known
        for form, translation in forms:
            if found := form.fullmatch(text):
                return _filled(translation, found.groups())
        return text

    return translate


def _filled(translation: str, given: Sequence[str]) -> str:
    return _PLACE.sub(lambda place: given[int(place[1]) - 1], translation)
