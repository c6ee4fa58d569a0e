"""Templates: everything is escaped, an unknown name is an error, texts go through gettext.

There is one environment for each language. The macros of `frame/parts.html` are everywhere there,
under the name `ui`.
"""

from collections.abc import Mapping
from functools import cache
from gettext import NullTranslations
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from app.web.rendering.api_texts import translator_of
from app.web.rendering.assets import Assets, packaged_assets
from app.web.rendering.languages import LANGUAGES, packaged_translations
from app.web.rendering.values import FILTERS

LIVE_BEGINS: Final = "<!-- live -->"
LIVE_ENDS: Final = "<!-- end of live -->"


class Templates:
    """The templates of this package in every language."""

    def __init__(self, assets: Assets, translations: Mapping[str, NullTranslations]) -> None:
        self._environments = {
            code: _environment(assets, each) for code, each in translations.items()
        }

    def render(self, language: str, template: str, values: Mapping[str, Any]) -> str:
        """A whole page."""
        return self._environments[language].get_template(template).render(values)

    def render_live(self, language: str, template: str, values: Mapping[str, Any]) -> str:
        """What of a page changes while it is open."""
        text = self.render(language, template, values)
        return text.partition(LIVE_BEGINS)[2].partition(LIVE_ENDS)[0]


@cache
def packaged_templates() -> Templates:
    """The templates with the files and languages of this package, the same in each site of the
    process: each is compiled once."""
    return Templates(packaged_assets(), packaged_translations())


def _environment(assets: Assets, translations: NullTranslations) -> Environment:
    templates = Environment(
        loader=PackageLoader("app.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n", "jinja2.ext.do"],
    )
    templates.policies["ext.i18n.trimmed"] = True
    templates.install_gettext_translations(  # type: ignore[attr-defined]  # added by the extension
        translations, newstyle=True
    )
    templates.filters.update(FILTERS, said=translator_of(translations))
    templates.globals.update(asset=assets.path, languages=LANGUAGES)
    templates.globals["ui"] = templates.get_template("frame/parts.html").module
    return templates
