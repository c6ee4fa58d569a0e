"""API8, security misconfiguration: what a node gives away or permits by default."""

import stat

import pytest

from tests.support.cluster.closed_cluster import ClosedCluster

pytestmark = pytest.mark.anyio

EVIL = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
MALFORMED = (
    *("/v1/topics?page_token=%00", "/v1/topics/%ff", "/v1/topics?page_size=x", "/v1/topics/a'--"),
    *("/v1/topics/<script>", "/v1/topics/${jndi:ldap://x}", "/v1/topics/{{7*7}}", "/v1/topics/%s"),
)


async def test_no_other_origin_reads_or_writes(target: ClosedCluster) -> None:
    for node in range(len(target.nodes)):
        for who in ("alpha", None):
            for method in ("GET", "OPTIONS", "PUT"):
                answer = await target.ask(
                    *(node, who, method, "/v1/topics/alpha-evil"),
                    headers={**EVIL, "access-control-request-method": "PUT"},
                    content=b"{}" if method == "PUT" else None,
                )
                assert not [each for each in answer.headers if each.startswith("access-control")]
                assert not answer.is_success or method == "GET", answer.text
    gone = await target.ask(0, "alpha", "GET", "/v1/topics/alpha-evil")
    assert gone.status_code == 404


async def test_errors_show_no_inside(target: ClosedCluster) -> None:
    for node in range(len(target.nodes)):
        for path in MALFORMED:
            answer = await target.ask(node, "alpha", "GET", path)
            assert answer.status_code in (400, 403, 404), f"{path}: {answer.text}"
            assert answer.headers["content-type"] == "application/problem+json"
            for inside in ("Traceback", "sqlalchemy", "/app/", ".py", "uvicorn"):
                assert inside not in answer.text, path
        answer = await target.ask(node, None, "GET", "/healthz")
        assert answer.status_code == 200
        for name in ("server", "x-powered-by", "via"):
            assert name not in answer.headers


async def test_what_is_kept_is_the_owners_alone(target: ClosedCluster) -> None:
    count = 0
    for each in target.nodes:
        directory = each.node.config.data_dir
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        for file in directory.rglob("*"):
            count += 1
            assert not stat.S_IMODE(file.stat().st_mode) & 0o077, file
    assert count > 5


async def test_markup_of_a_message_is_no_page(target: ClosedCluster) -> None:
    page = b"<script>alert(1)</script>"
    path = "/v1/topics/alpha-in/messages?queue_id=0"
    headers = {"content-type": "text/html"}
    sent = await target.ask(0, "alpha", "POST", path, content=page, headers=headers)
    assert sent.status_code == 201, sent.text
    where = f"/v1/topics/alpha-in/messages/{sent.json()['message_id']}?format=raw"
    for node in range(len(target.nodes)):
        shown = await target.ask(node, "alpha", "GET", where)
        assert shown.content == page
        assert shown.headers["x-content-type-options"] == "nosniff"
        is_download = "attachment" in shown.headers.get("content-disposition", "")
        is_fenced = "sandbox" in shown.headers.get("content-security-policy", "")
        assert is_download or is_fenced or "html" not in shown.headers["content-type"]


async def test_answers_with_a_key_are_no_caches(target: ClosedCluster) -> None:
    made = await target.ask(0, "root", "POST", "/v1/principals/gamma/keys", json={})
    assert "no-store" in made.headers["cache-control"]
    for node in range(len(target.nodes)):
        for path in ("/v1/topics", "/v1/whoami", "/v1/groups/alpha-g"):
            answer = await target.ask(node, "alpha", "GET", path)
            kept = answer.headers.get("cache-control", "")
            assert "private" in kept or "no-store" in kept, path
