"""API2, broken authentication: whatever is no credential that counts now is 401 at every node, for
every path but the open ones; one that counts works from memory, as `curl -u` and `curl -H`."""

import base64
import subprocess
from typing import Any

import pytest

from tests.support.cluster.closed_cluster import ClosedCluster
from tests.support.cluster.forged_tokens import bad_tokens

pytestmark = pytest.mark.anyio

PATHS = ("/v1/topics", "/v1/whoami", "/openapi.json", "/docs", "/metrics", "/nothing", "/v1")


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def wrong_credentials(target: ClosedCluster) -> dict[str, str]:
    key = target.keys["alpha"]
    other = target.keys["beta"]
    head, secret = key.rsplit("_", 1)
    mixed = f"{head}_{other.rsplit('_', 1)[1]}"
    return {
        "nothing": "",
        "a scheme alone": "Bearer",
        "a typing error": f"Bearer {key[:-1]}{'a' if key[-1] != 'a' else 'b'}",
        "cut": f"Bearer {key[:-6]}",
        "lengthened": f"Bearer {key}0",
        "the secret of another": f"Bearer {mixed}",
        "the id alone": f"Bearer {head}",
        "the secret alone": f"Bearer {secret}",
        "another case": f"Bearer {key.swapcase()}",
        "two in one": f"Bearer {key}, Bearer {other}",
        "a scheme that is none": f"Token {key}",
        "the name as the password": basic("root", "root"),
        "an empty password": basic("alpha", ""),
        "no base64": "Basic !!!",
        "of another user, cut": basic("root", key[:-2]),
        **{f"token: {what}": f"Bearer {token}" for what, token in bad_tokens(target).items()},
    }


async def test_what_is_no_credential_opens_nothing(target: ClosedCluster) -> None:
    for node, served in enumerate(target.nodes):
        for path in PATHS:
            answer = await served.client.get(path)
            assert answer.status_code == 401, f"{path} by node {node}"
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert "Basic" not in answer.headers["www-authenticate"], "browsers would keep it"
        for what, header in wrong_credentials(target).items():
            answer = await served.client.get("/v1/topics", headers={"authorization": header})
            assert answer.status_code == 401, f"{what}: {answer.text}"
            assert "alpha" not in answer.text, what


async def test_a_key_counts_in_one_header_alone(target: ClosedCluster) -> None:
    key = target.keys["root"]
    for served in target.nodes:
        for asked in (f"?key={key}", f"?access_token={key}", f"?authorization=Bearer%20{key}"):
            assert (await served.client.get(f"/v1/topics{asked}")).status_code == 401
        for name in ("x-api-key", "mq-principal", "curlew-principal", "x-forwarded-user", "cookie"):
            answer = await served.client.get("/v1/topics", headers={name: key})
            assert answer.status_code in (400, 401), name
        two = [("authorization", f"Bearer {key}"), ("authorization", "Bearer x")]
        for given in (two, two[::-1], [two[0], two[0]]):
            answer = await served.client.get("/v1/topics", headers=given)
            assert answer.status_code == 400


async def test_a_key_ends_when_it_does(target: ClosedCluster) -> None:
    path = "/v1/principals/alpha/keys"
    made = (await target.ask(0, "root", "POST", path, json={})).json()
    await target.refresh()
    for node in range(len(target.nodes)):
        assert (await target.ask(node, made["key"], "GET", "/v1/topics")).status_code == 200
    gone = await target.ask(0, "root", "DELETE", f"{path}/{made['id']}")
    assert gone.status_code == 204
    await target.refresh()
    for node in range(len(target.nodes)):
        assert (await target.ask(node, made["key"], "GET", "/v1/topics")).status_code == 401
    brief = (await target.ask(0, "root", "POST", path, json={"expires": "1ms"})).json()
    await target.refresh()
    answer = await target.ask(0, brief["key"], "GET", "/v1/topics")
    assert answer.status_code == 401


async def test_curl_from_memory(target: ClosedCluster) -> None:
    """By the header, and by `-u` with the key as the password, whatever the user."""
    import anyio.to_thread  # beside the loop that serves

    key, ca = target.keys["alpha"], str(target.place.authority_file)
    for served in target.nodes:
        url = f"{str(served.client.base_url).rstrip('/')}/v1/topics"
        for how in (["-H", f"Authorization: Bearer {key}"], ["-u", f":{key}"], ["-u", f"me:{key}"]):
            command = ["curl", "-s", "--cacert", ca, *how, url]

            def run(command: list[str] = command) -> Any:
                return subprocess.run(command, capture_output=True, text=True, check=True)

            done = await anyio.to_thread.run_sync(run)
            assert "alpha-in" in done.stdout, done
            assert "beta-in" not in done.stdout
