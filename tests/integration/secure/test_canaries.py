"""Planted secrets are in no log, answer, metric, trail, document or audit of a node.

The control: the search finds each of them where it was planted.
"""

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from app.config import ConfigError, load_config
from app.domain.limits import Limits
from tests.integration.secure.test_secrets import SECRET, private
from tests.support.clients.tls import TlsPlace
from tests.support.clients.wire import Served, served_node

pytestmark = pytest.mark.anyio

WRONG = "curlew_0JDEHv3a6Xr4k_canaryCANARYcanaryCANARYcanaryCANARYcanary0"
PASSWORD = "canary-password-of-the-database"
COOKIE = "canary-of-a-cookie"
READ = [
    *("/v1/config", "/metrics", "/openapi.json", "/docs", "/v1/audit", "/v1/limits", "/v1/nodes"),
    *("/v1/topics", "/v1/topics/orders/stats", "/v1/error-codes", "/healthz", "/readyz", "/ui/"),
    *("/v1/topics/none", "/v1/topics/orders/queues/x/messages", "/nothing", "/v1/groups/g/lag"),
]


@pytest.fixture
def place(tmp_path: Path) -> TlsPlace:
    return TlsPlace(tmp_path / "tls")


@pytest.fixture
async def server(place: TlsPlace, tmp_path: Path) -> AsyncIterator[Served]:
    (tmp_path / "data").mkdir()
    async with served_node(
        tmp_path / "data",
        Limits(),
        **place.settings,
        secret_key_file=private(tmp_path / "secret", SECRET),
        admin_key_file=tmp_path / "admin.key",
        access_log=True,
    ) as served:
        yield served


def found_in(text: str, canaries: list[str]) -> list[str]:
    """The secrets that are in the text, as they are or in base64."""
    forms = {each: (each, base64.b64encode(each.encode()).decode()) for each in canaries}
    return [each for each, written in forms.items() if any(form in text for form in written)]


async def everything_said(server: Served, place: TlsPlace, key: str) -> str:
    said = []
    url = f"https://127.0.0.1:{server.port}"
    async with httpx.AsyncClient(base_url=url, verify=place.client(), timeout=60) as client:
        for shown in (key, WRONG):
            headers = {"authorization": f"Bearer {shown}", "cookie": f"session={COOKIE}"}
            for path in READ:
                answer = await client.get(path, headers=headers)
                said += [answer.text, str(answer.headers)]
            for body in ("{", '{"queues": "x"}', '{"queues": 2}'):
                made = await client.put("/v1/topics/t", content=body, headers=headers)
                said += [made.text, str(made.headers)]
            sent = await client.post("/v1/topics/orders/messages", content=b"x", headers=headers)
            said.append(sent.text)
        basic = await client.get("/v1/topics", auth=("anybody", WRONG))
        said.append(basic.text)
    await server.node.metadata.audit.flush()
    return "\n".join(said)


async def test_no_secret_is_ever_shown(
    server: Served, place: TlsPlace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = (tmp_path / "admin.key").read_text().strip()
    private_key = place.key_file.read_text().splitlines()[1]
    canaries = [SECRET, key, key.split("_")[2], WRONG, COOKIE, private_key]
    with caplog.at_level("DEBUG"):
        said = await everything_said(server, place, key)
    assert len(said) > 100_000
    assert found_in(said, canaries) == []
    assert "GET" in caplog.text, "the requests are in the log"
    assert found_in(caplog.text, canaries) == []
    planted = "\n".join(canaries)
    assert found_in(planted, canaries) == canaries, "the search finds what there is"


def test_no_wrong_setting_shows_a_secret(tmp_path: Path) -> None:
    url = f"postgresql://curlew:{PASSWORD}@db/x"
    file = private(tmp_path / "url", url)
    file.chmod(0o644)
    for environment, flags in (
        ({}, {"database_url": url}),
        ({"CURLEW_DATABASE_URL": url, "CURLEW_PORT": "x"}, {}),
        ({"CURLEW_DATABASE_URL_FILE": str(file)}, {}),
        ({"CURLEW_DATABASE_URL_FILE": str(file), "CURLEW_DATABASE_URL": url}, {}),
    ):
        with pytest.raises(ConfigError) as caught:
            load_config(environment, flags)
        assert found_in(str(caught.value), [PASSWORD]) == []
