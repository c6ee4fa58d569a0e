"""Templates: everything is escaped, an unknown name is an error, texts go through gettext."""

from gettext import NullTranslations

from jinja2 import Environment, PackageLoader, StrictUndefined

from app.web.assets import Assets
from app.web.views import moment_text, number_text


def build_templates(assets: Assets, translations: NullTranslations) -> Environment:
    """The templates of this package in the language of `translations`."""
    templates = Environment(
        loader=PackageLoader("app.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n"],
    )
    templates.install_gettext_translations(  # type: ignore[attr-defined]  # added by the extension
        translations, newstyle=True
    )
    templates.filters["number"] = number_text
    templates.filters["moment"] = moment_text
    templates.globals["asset"] = assets.path
    return templates
