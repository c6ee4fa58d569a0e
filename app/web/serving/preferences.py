"""What a browser keeps of its user's taste: theme and language, each in a cookie."""

from typing import Final

from starlette.requests import Request

LANGUAGE_COOKIE: Final = "curlew_language"
THEME_COOKIE: Final = "curlew_theme"
THEMES: Final = ("auto", "light", "dark")
KEPT_S: Final = 400 * 86_400
"""The longest that browsers keep a cookie."""


def theme_of(request: Request) -> str:
    """`auto` is that of the system."""
    found = request.cookies.get(THEME_COOKIE, "")
    return found if found in THEMES else THEMES[0]
