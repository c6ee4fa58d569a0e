"""Sentences of the API in another language."""

import re
from gettext import NullTranslations

import pytest

from app.web.rendering.api_texts import translator_of
from app.web.rendering.languages import Translations, packaged_translations
from tests.support.translations.ui_api_texts import api_texts
from tests.support.translations.ui_messages import translated

GAP = re.compile(r"\{\}")
PLACE = re.compile(r"\{(\d+)\}")


def test_a_sentence_is_known_by_its_form() -> None:
    translate = translator_of(
        Translations(
            {
                "queue {} of {}": "{2}/{1}",
                "queue {} of {} and all others": "all but {1}",
                "{} bytes are missing": "",
                "try again": "nochmals",
            }
        )
    )
    assert translate("queue 3 of 'a {1} b'") == "'a {1} b'/3"
    assert translate("queue 3 of x and all others") == "all but 3"
    assert translate("try again") == "nochmals"
    assert translate("7 bytes are missing") == "7 bytes are missing"
    assert translate("what nobody foresaw") == "what nobody foresaw"
    assert translator_of(NullTranslations())("try again") == "try again"


@pytest.mark.parametrize("text", dict.fromkeys(api_texts()))
def test_a_translation_has_the_places_of_the_sentence(text: str) -> None:
    places = {int(each) for each in PLACE.findall(translated("zh", "api")[text])}
    assert places == set(range(1, len(GAP.findall(text)) + 1))


def test_what_a_group_says_of_a_message_is_in_chinese() -> None:
    translate = translator_of(packaged_translations()["zh"])
    said = "the group reads by offset, and has committed 0 in queue 2 of 'orders'"
    assert translate(said) == "消费组按位点读取，在 queue 2 of 'orders' 已提交至 0"  # noqa: RUF001
