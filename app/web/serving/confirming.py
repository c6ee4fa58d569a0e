"""Acts that cannot be taken back ask for a name to be typed; the node checks it as well."""

from app.web.serving.api import Json
from app.web.serving.page import Page


def is_typed(page: Page, name: str) -> bool:
    """Whether the form of a dangerous act has the name."""
    return page.form.get("typed", "").strip() == name


def not_typed(page: Page, name: str) -> Json:
    """Why nothing was done, as a problem."""
    return {
        "detail": page.gettext("The name is not “%(name)s”; nothing was done.") % {"name": name},
        "hint": page.gettext("Type the name to confirm."),
    }
