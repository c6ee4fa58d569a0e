"""Drives Debian's Chromium, and notes what a page must not do.

Nothing is downloaded: Playwright gets the installed browser. Each test has a context of its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Final, Literal, cast, get_args

from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Locator,
    Page,
    Request,
    expect,
    sync_playwright,
)

Theme = Literal["light", "dark"]
WIDTHS: Final = (380, 1_280)
"""Of a phone and of a desk, in CSS pixels."""

EXPECTED_WITHIN_MS: Final = 30_000
"""Playwright waits 5 s for what is expected: too few for an election on a busy machine."""
expect.set_options(timeout=EXPECTED_WITHIN_MS)

CHROMIUM: Final = "/usr/bin/chromium"
FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SCREENSHOTS: Final = Path(__file__).parents[3] / "build" / "screenshots"

AXE_SCRIPT: Final = (files("axe_playwright_python") / "axe.min.js").read_text()
AXE_RUN: Final = """
async () => (await axe.run(document, {resultTypes: ['violations']})).violations.map(
    found => `${found.id}: ${found.help}: ${found.nodes.map(node => node.html).join(' | ')}`)
"""

NOTE_VIOLATIONS: Final = """
window.policyViolations = [];
document.addEventListener('securitypolicyviolation',
    event => window.policyViolations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser with a new profile."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@dataclass(slots=True)
class Watched:
    """A page, and what was noticed while it was used."""

    page: Page
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def policy_violations(self) -> list[str]:
        return cast("list[str]", self.page.evaluate("window.policyViolations"))

    def accessibility_violations(self) -> list[str]:
        """axe-core's findings; only on a page opened with `inspect`."""
        self.page.evaluate(AXE_SCRIPT)
        return cast("list[str]", self.page.evaluate(AXE_RUN))

    def is_wider_than_the_window(self) -> bool:
        return bool(
            self.page.evaluate("document.documentElement.scrollWidth > window.innerWidth + 1")
        )

    def check_every_look(self, picture: str) -> None:
        """In both themes axe-core finds nothing, and at two widths nothing is wider than the
        window; a picture is kept of each. Only on a page opened with `inspect`."""
        for theme in get_args(Theme):
            self.page.emulate_media(color_scheme=theme)
            assert self.accessibility_violations() == []
            for width in WIDTHS:
                self.page.set_viewport_size({"width": width, "height": 800})
                assert not self.is_wider_than_the_window()
                self.keep_picture(f"ui-{picture}-{theme}-{width}")

    def foreign_requests(self, origin: str) -> list[str]:
        return [url for url in self.requests if not url.startswith(f"{origin}/")]

    def keep_picture(self, name: str) -> None:
        """Take a picture of the whole page, for people to look at."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


CLICKS_MAX: Final = 4
"""What a task of an operator may take, from the overview on."""


@dataclass(slots=True)
class Operator:
    """Does a task from the overview on, and counts its clicks: an Enter counts as one, typing and
    choosing what is in a field do not."""

    page: Page
    origin: str
    clicks: int = 0

    def begin(self) -> None:
        """Open the overview: another task."""
        self.clicks = 0
        self.page.goto(f"{self.origin}/ui/")

    def click(self, role: Literal["link", "button"], name: str, *, exact: bool = True) -> None:
        """Click the one that is called so."""
        self.click_on(self.page.get_by_role(role, name=name, exact=exact))

    def click_on(self, found: Locator) -> None:
        """Click this one."""
        self.clicks += 1
        found.click()

    def search(self, text: str) -> None:
        """From any page, by the keyboard."""
        self.clicks += 1
        self.page.keyboard.press("/")
        self.page.keyboard.type(text)
        self.page.keyboard.press("Enter")


@contextmanager
def watched_page(
    browser: Browser,
    *,
    theme: Theme = "light",
    width: int = 1_200,
    scripts: bool = True,
    inspect: bool = False,
) -> Iterator[Watched]:
    """A page in a context of its own; `inspect` lets axe in past the policy of the page."""
    context = browser.new_context(
        color_scheme=theme,
        viewport={"width": width, "height": 800},
        java_script_enabled=scripts,
        bypass_csp=inspect,
        reduced_motion="reduce",
    )
    try:
        context.add_init_script(NOTE_VIOLATIONS)
        watched = Watched(page := context.new_page())

        def note_console(message: ConsoleMessage) -> None:
            watched.console.append(f"{message.type}: {message.text}")

        def note_request(request: Request) -> None:
            watched.requests.append(request.url)

        page.on("console", note_console)
        page.on("request", note_request)
        page.on("pageerror", lambda error: watched.console.append(f"uncaught: {error}"))
        yield watched
    finally:
        context.close()
