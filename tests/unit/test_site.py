"""The pages: every link leads somewhere, nothing is loaded from elsewhere, names are the program's.

`make check` builds the site itself; here its settings build made-up pages, to see that they bite.
"""

import configparser
import json
import logging
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config as load_mkdocs

from app.commands.server_words import parser_of
from app.commands.settings_page import settings_page
from app.config import NAMES, OF_CLIENTS, load_config
from app.domain.limits import Limits
from app.runtime.descriptors import fitted

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FILES_PER_FOLDER_MAX = 12
READMES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "*/README.md")

_LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")
_LOADED = re.compile(r"<(?:script|img|link|iframe|source)\b[^>]*?(?:src|href)=\"?([^\s\">]+)")


@pytest.fixture
def warnings_of_mkdocs(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.WARNING, "mkdocs"):
        yield caplog


def built(tmp_path: Path, pages: dict[str, str]) -> Path:
    """A site of `pages` with the settings of ours, and where it is."""
    docs, site = tmp_path / "docs", tmp_path / "site"
    for name, text in pages.items():
        (docs / name).parent.mkdir(parents=True, exist_ok=True)
        (docs / name).write_text(text)
    build(
        load_mkdocs(
            str(ROOT / "mkdocs.yml"),
            docs_dir=str(docs),
            site_dir=str(site),
            nav=["index.md"],
        )
    )
    return site


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("page", "warning"),
    [
        ("[there](index.md#here)\n\n## Here\n", None),
        ("[there](nowhere.md)\n", "nowhere.md"),
        ("[there](#nowhere)\n", "#nowhere"),
        ("[there](/index.md)\n", "absolute link"),
        ("[there](../mkdocs.yml)\n", "mkdocs.yml"),
    ],
)
def test_a_link_that_leads_nowhere_is_told_of(
    tmp_path: Path,
    warnings_of_mkdocs: pytest.LogCaptureFixture,
    page: str,
    warning: str | None,
) -> None:
    built(tmp_path, {"index.md": page})
    told = warnings_of_mkdocs.text
    assert (warning in told) if warning else (told == ""), told


@pytest.mark.filterwarnings("ignore")
def test_a_page_that_is_in_no_menu_is_told_of(
    tmp_path: Path, warnings_of_mkdocs: pytest.LogCaptureFixture
) -> None:
    built(tmp_path, {"index.md": "# A", "lost.md": "# B", "adr/0001-a.md": "# C"})
    assert "lost.md" in warnings_of_mkdocs.text
    assert "0001-a.md" not in warnings_of_mkdocs.text


@pytest.mark.filterwarnings("ignore")
def test_the_site_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    site = built(tmp_path, {"index.md": "# A page\n\n```python\nx = 1\n```\n"})
    page = (site / "index.html").read_text()
    loaded = _LOADED.findall(page)
    assert any(each.endswith(".js") for each in loaded)
    assert any(each.endswith(".css") for each in loaded)
    assert [each for each in loaded if "//" in each] == []
    assert '"search"' in page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"@import|url\(\"?(https?:)?//", sheet.read_text())


def test_what_is_loaded_from_elsewhere_would_be_noticed() -> None:
    page = (
        '<link rel="stylesheet" href="https://fonts.example/a.css"><script src=//b/c.js></script>'
    )
    assert _LOADED.findall(page) == ["https://fonts.example/a.css", "//b/c.js"]


def broken_links(page: Path, text: str) -> list[str]:
    return [
        target
        for target in _LINK.findall(text)
        if "://" not in target and not (page.parent / target).exists()
    ]


def test_the_readmes_link_to_what_is_there() -> None:
    pages = [page for place in READMES for page in ROOT.glob(place)]
    assert len(pages) >= 6
    assert {
        str(page): found for page in pages if (found := broken_links(page, page.read_text()))
    } == {}
    assert broken_links(ROOT / "README.md", "[a](docs/none.md) [b](docs/index.md#x)") == [
        "docs/none.md"
    ]


def test_every_decision_is_in_the_list() -> None:
    index = (DOCS / "adr/index.md").read_text()
    decisions = [page.name for page in (DOCS / "adr").glob("0*.md")]
    assert len(decisions) > 40
    assert [name for name in decisions if f"]({name})" not in index] == []


def test_folders_are_small() -> None:
    for folder in [DOCS, *(each for each in DOCS.iterdir() if each.is_dir())]:
        if folder.name != "adr":
            assert (
                len([each for each in folder.iterdir() if each.is_file()]) <= FILES_PER_FOLDER_MAX
            )


def test_the_page_of_settings_is_fresh() -> None:
    assert (DOCS / "running/settings.md").read_text() == settings_page()


def unknown_settings(text: str) -> set[str]:
    known = {f"CURLEW_{name.upper()}" for name in NAMES}
    known |= OF_CLIENTS | {f"CURLEW_LIMIT_{name.upper()}" for name in Limits.__slots__}
    return set(re.findall(r"\bCURLEW_[A-Z_]*[A-Z]\b", text)) - known


def test_the_pages_name_settings_that_there_are() -> None:
    pages = [page for page in DOCS.rglob("*.md") if page.parent.name not in {"adr", "spark"}]
    assert {
        str(page): found for page in pages if (found := unknown_settings(page.read_text()))
    } == {}
    assert unknown_settings("CURLEW_PORT and CURLEW_PROT") == {"CURLEW_PROT"}


def strange_metrics(text: str) -> set[str]:
    sources = [page.read_text() for page in (ROOT / "app/api").rglob("*metrics.py")]
    known = set(re.findall(r'"((?:curlew|rocketmq)_[a-z_]+)"', "".join(sources)))
    assert len(known) > 20
    return set(re.findall(r"\b(?:curlew|rocketmq)_[a-z_]+[a-z]\b", text)) - known


def test_alerts_name_metrics_that_there_are() -> None:
    for page in ("running/health.md", "running/monitoring/alerts.md"):
        assert strange_metrics((DOCS / page).read_text()) == set()
    assert strange_metrics("curlew_ready and curlew_redy") == {"curlew_redy"}


def strange_operations(text: str) -> list[str]:
    """`METHOD /path` in a page that the document of the API does not have."""
    paths = json.loads((ROOT / "openapi/openapi.json").read_text())["paths"]
    known = [
        (method.upper(), re.compile(re.sub(r"\{\w+\}", "[^/]+", re.escape(path).replace("\\", ""))))
        for path, methods in paths.items()
        for method in methods
    ]
    named = re.findall(
        r"\b(GET|PUT|POST|PATCH|DELETE|HEAD) (/(?:v1/|metrics|readyz)[^\s`?,]*)", text
    )
    return [
        f"{method} {path}"
        for method, path in named
        if "…" not in path
        and not any(verb == method and form.fullmatch(path) for verb, form in known)
    ]


def test_the_pages_name_operations_that_there_are() -> None:
    pages = [page for page in DOCS.rglob("*.md") if page.parent.name != "adr"]
    text = "\n".join(page.read_text() for page in pages)
    assert len(re.findall(r"\b(?:GET|PUT|POST|DELETE) /v1/", text)) > 60
    assert strange_operations(text) == []
    assert strange_operations("POST /v1/topics/{topic}/messages, GET /v1/tropics") == [
        "GET /v1/tropics"
    ]


def test_the_unit_of_systemd_starts_a_node() -> None:
    page = (DOCS / "running/systemd.md").read_text()
    unit = configparser.ConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    found = re.search(r"```ini\n(.*?)```", page, re.DOTALL)
    assert found
    unit.read_string(found[1])
    service = unit["Service"]
    command = shlex.split(service["ExecStart"])
    assert Path(command[0]).name == "curlew"
    options = parser_of().parse_args(command[1:])
    assert (options.command, options.migrate) == ("serve", True)
    environment = dict(re.findall(r"^Environment=(\w+)=(.*)$", found[1], re.MULTILINE))
    config = load_config(environment, {})
    assert config.data_dir == Path("/var/lib") / service["StateDirectory"]
    assert fitted(config.limits, int(service["LimitNOFILE"])) == config.limits
    assert int(service["TimeoutStopSec"]) > 10


def test_the_nav_has_every_folder() -> None:
    loader: Any = yaml.SafeLoader
    nav = yaml.load((ROOT / "mkdocs.yml").read_text(), loader)["nav"]
    named = set(re.findall(r"[\w-]+(?:/[\w-]+)*\.md", str(nav)))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert named == {page for page in pages if not page.startswith("adr/0")}


def test_promises_are_proved_by_tests_that_are_there() -> None:
    """Each promise names its tests by their paths in `tests/`, or in the connector's."""
    named = re.findall(r"`((?:[a-z_]+/)*test_[a-z_]+\.py)", (DOCS / "promises.md").read_text())
    assert len(named) > 40
    folders = (ROOT / "tests", ROOT, ROOT / "spark_connector" / "tests")
    gone = {name for name in named if not any((each / name).is_file() for each in folders)}
    assert not gone, f"name the tests of promises.md by where they are: {sorted(gone)}"
