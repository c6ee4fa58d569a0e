"""Reading translations, and choosing a language."""

import pytest

from app.web.rendering.languages import (
    Translations,
    UnreadableTranslations,
    language_of,
    packaged_translations,
    read_po,
)

PO = """
# a comment
msgid ""
msgstr ""
"Content-Type: text/plain\\n"

msgid "Topics"
msgstr "主题"

#: place
msgid "%(n)s queue"
msgid_plural "%(n)s queues"
msgstr[0] "%(n)s 个队列"

msgid ""
"over "
"lines \\"quoted\\""
msgstr "多行"

msgid "untranslated"
msgstr ""
"""


def test_a_file_is_read() -> None:
    found = read_po(PO)
    assert found == {
        "Topics": "主题",
        "%(n)s queue": "%(n)s 个队列",
        'over lines "quoted"': "多行",
        "untranslated": "",
    }
    texts = Translations(found)
    assert texts.gettext("Topics") == "主题"
    assert texts.gettext("untranslated") == "untranslated"
    assert texts.ngettext("%(n)s queue", "%(n)s queues", 2) == "%(n)s 个队列"
    assert texts.ngettext("one", "many", 2) == "many"


def test_what_is_not_read_is_told_of() -> None:
    with pytest.raises(UnreadableTranslations):
        read_po('msgctxt "menu"\nmsgid "x"\nmsgstr "y"')


def test_the_files_of_the_package_are_read() -> None:
    assert packaged_translations()["zh"].gettext("Topics") == "主题"


@pytest.mark.parametrize(
    ("chosen", "accepted", "language"),
    [
        (None, "", "en"),
        (None, "zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        (None, "de,zh;q=0.5", "zh"),
        ("en", "zh", "en"),
        ("xx", "fr", "en"),
    ],
)
def test_a_language_is_chosen(chosen: str | None, accepted: str, language: str) -> None:
    assert language_of(chosen, accepted) == language
