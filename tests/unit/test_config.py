"""The configuration: by environment and file, and what is wrong with it is said."""

import subprocess
import sys
from pathlib import Path

import pytest

from app.config import ConfigError, load_config
from app.domain.limits import ContradictingLimits, Limits
from tests.support.nodes.node import ROOT


def test_limits_come_from_environment_and_file(tmp_path: Path) -> None:
    file = tmp_path / "curlew.toml"
    file.write_text("port = 0\n[limits]\nwait_seconds_max = 5\nidempotency_window_ms = 9\n")
    environment = {"CURLEW_LIMIT_IDEMPOTENCY_WINDOW_MS": "7", "CURLEW_LIMIT_PAGE_SIZE_MAX": "8"}
    config = load_config(environment, {}, file)
    assert config.limits == Limits(wait_seconds_max=5, idempotency_window_ms=9, page_size_max=8)
    assert load_config({}, {}).limits == Limits()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("LIMIT_WAIT_SECONDS_MAXX", "5", "did you mean 'limit_wait_seconds_max'"),
        ("LIMIT_WAIT_SECONDS_MAX", "0", "whole number from 1"),
        ("LIMIT_WAIT_SECONDS_MAX", "long", "whole number from 1"),
        (
            "LIMIT_BODY_BYTES_MAX",
            str(2**40),
            "limit_body_bytes_max and limit_batch_bytes_max contradict each other: "
            "body_bytes_max = 1099511627776: it is over batch_bytes_max, which is 33554432",
        ),
        ("LIMIT_PROPERTIES_BYTES_MAX", "32768", "it is over properties_encoded_bytes_max"),
        ("LIMIT_INVISIBLE_MS_MIN", str(2**40), "it is over invisible_ms_max"),
        ("LIMIT_BODIES_IN_FLIGHT_BYTES_MAX", "1", "2 times it is over bodies_in_flight"),
        ("LIMIT_PENDING_APPEND_BYTES_MAX", "1", "it is over pending_append_bytes_max"),
        ("LIMIT_RETENTION_MS_MAX", "1", "retention_ms_min = 60000: it is over retention_ms_max"),
        ("TRUSTED_PROXIES", "*", "use addresses and networks"),
        ("TRUSTED_PROXIES", "10.0.0.1, proxy.example", "'proxy.example' does not appear"),
        ("TRUSTED_PROXIES", "10.0.0.1/8", "has host bits set"),
        ("FLUSH_INTERVAL_MS", "9", "whole number from 10 to 60000"),
        ("FLUSH_INTERVAL_MS", "600000", "whole number from 10 to 60000"),
        ("FLUSH_INTERVAL_MS", "0.5", "whole number from 10 to 60000"),
        ("LOG_CACHE_MIB", "63", "whole number from 64 to 1073741824, or 0"),
        ("LOG_CACHE_MIB", "all", "whole number from 64 to 1073741824, or 0"),
    ],
)
def test_what_cannot_be_is_said(name: str, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_config({f"CURLEW_{name}": text}, {})


@pytest.mark.parametrize("bad", [999, 43_200_001, 432_000_000])
def test_a_default_beyond_its_own_bounds_is_refused(bad: int) -> None:
    with pytest.raises(ConfigError, match="transaction_check_after_ms"):
        load_config({"CURLEW_LIMIT_TRANSACTION_CHECK_AFTER_MS": str(bad)}, {})


@pytest.mark.parametrize(
    "name",
    [
        *("invisible_ms_min", "member_lease_ms", "queue_lock_ms", "retention_ms_min"),
        "replication_wait_ms",
    ],
)
def test_bounds_without_which_nothing_works_are_positive(name: str) -> None:
    with pytest.raises(ContradictingLimits, match=f"{name} = 0: use 1 or more"):
        Limits(**{name: 0})


def test_contradictions_are_found_by_an_optimizing_python_too() -> None:
    environment = {"CURLEW_LIMIT_BODY_BYTES_MAX": "99999999"}
    program = f"from app.config import load_config; load_config({environment}, {{}})"
    command = [sys.executable, "-O", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 1
    assert "ConfigError: limit_body_bytes_max and limit_batch_bytes_max contradict" in done.stderr


def test_no_proxy_is_trusted_unless_it_is_named(tmp_path: Path) -> None:
    assert load_config({"FORWARDED_ALLOW_IPS": "*"}, {}).trusted_proxies == ()
    named = load_config({"CURLEW_TRUSTED_PROXIES": "127.0.0.1, 10.0.0.0/8,::1"}, {})
    assert named.trusted_proxies == ("127.0.0.1", "10.0.0.0/8", "::1")
    file = tmp_path / "curlew.toml"
    file.write_text('trusted_proxies = ["127.0.0.1", "10.0.0.0/8"]\n')
    assert load_config({}, {}, file).trusted_proxies == ("127.0.0.1", "10.0.0.0/8")
    assert load_config({}, {"trusted_proxies": ""}, file).trusted_proxies == ()


@pytest.mark.parametrize(("text", "mib"), [("0", 0), ("64", 64), ("1073741824", 2**30)])
def test_how_much_of_the_log_stays_in_memory(text: str, mib: int) -> None:
    assert load_config({"CURLEW_LOG_CACHE_MIB": text}, {}).log_cache_mib == mib
    assert load_config({}, {}).log_cache_mib is None


def test_limits_in_the_file_are_a_table(tmp_path: Path) -> None:
    file = tmp_path / "curlew.toml"
    file.write_text("limits = 3\n")
    with pytest.raises(ConfigError, match=r"write \[limits\]"):
        load_config({}, {}, file)


def test_what_belongs_to_clients_is_let_be() -> None:
    theirs = {"CURLEW_URL": "http://a:1", "CURLEW_KEY": "curlew_x", "CURLEW_COMMAND": "curlew"}
    theirs |= {"CURLEW_CONTEXT": "eu", "CURLEW_CONTEXTS": "contexts.json"}
    assert load_config(theirs, {}) == load_config({}, {})


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://curlew:geheim@db.example/curlew",
        "postgresql://db.example/curlew?user=curlew&password=geheim",
    ],
)
def test_a_password_in_a_flag_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="--database-url-file") as caught:
        load_config({}, {"database_url": url})
    assert "geheim" not in str(caught.value)
    assert load_config({"CURLEW_DATABASE_URL": url}, {}).database_url == url
    harmless = "postgresql://curlew@db.example/curlew"
    assert load_config({}, {"database_url": harmless}).database_url == harmless


def test_the_url_of_the_database_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("postgresql://curlew:geheim@db.example/curlew\n")
    file.chmod(0o600)
    config = load_config({"CURLEW_DATABASE_URL_FILE": str(file)}, {})
    assert config.database == "postgresql://curlew:geheim@db.example/curlew"
    assert config.sources["database_url"] == "environment"
    assert "geheim" not in repr(config)
    with pytest.raises(ConfigError, match="give one of them"):
        load_config({"CURLEW_DATABASE_URL": "sqlite:///x"}, {"database_url_file": str(file)})
    file.chmod(0o604)
    with pytest.raises(ConfigError, match="chmod go=") as caught:
        load_config({}, {"database_url_file": str(file)})
    assert "geheim" not in str(caught.value)


CLUSTER = {"cluster_listen": "127.0.0.1:8810", "cluster_secret_file": "s"}
CLUSTER_TLS = {
    "cluster_tls_cert_file": "c",
    "cluster_tls_key_file": "k",
    "cluster_tls_ca_file": "a",
}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"tls_cert_file": "c"}, "go together"),
        (
            {"cluster_listen": "127.0.0.1:0", "cluster_secret_file": "s"},
            "no port that other nodes can know",
        ),
        (
            {**CLUSTER, "cluster_listen": "10.0.0.1:8810"},
            "--cluster-tls-ca-file; or say --plaintext",
        ),
        ({**CLUSTER, "cluster_tls_cert_file": "c"}, "give all three, or none"),
        (CLUSTER_TLS, "cluster_tls_cert_file needs cluster_listen"),
        ({**CLUSTER, **CLUSTER_TLS, "cluster_url": "http://b:1"}, "it is https://"),
        ({**CLUSTER, **CLUSTER_TLS, "cluster_listen": "0.0.0.0:8810"}, "give cluster_url"),
        ({**CLUSTER, **CLUSTER_TLS, "cluster_listen": "[::]:8810"}, "give cluster_url"),
        ({**CLUSTER, "cluster_url": "https://b:1"}, "the node has no cluster_tls_cert_file"),
        ({"tls_client_ca_file": "c"}, "needs tls_cert_file"),
        ({"host": "10.0.0.1"}, "curlew init --data-dir data\n  curlew serve --data-dir data"),
    ],
)
def test_settings_that_do_not_fit_each_other_say_what_to_do(
    flags: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        load_config({}, flags)


def test_a_data_directory_that_nobody_may_look_into_is_no_failure_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", refused)
    with pytest.raises(ConfigError, match="curlew init --data-dir data\n"):
        load_config({}, {"host": "10.0.0.1"})


@pytest.mark.parametrize(
    "more",
    [
        {"plaintext": "true"},
        {"insecure_anonymous": "true"},
        {"tls_cert_file": "c", "tls_key_file": "k"},
    ],
)
def test_other_machines_are_served_with_tls_or_where_it_is_said(more: dict[str, str]) -> None:
    assert load_config({}, {"host": "10.0.0.1", **more}).host == "10.0.0.1"


def test_nodes_of_other_machines_are_listened_to_with_tls() -> None:
    flags = {**CLUSTER, **CLUSTER_TLS, "cluster_listen": "10.0.0.1:8810"}
    assert load_config({}, flags).has_cluster_tls


OF_REPLICAS = {
    "replicas": "3",
    "shard": "orders",
    "database_url": "postgresql://localhost/curlew",
    "cluster_listen": "127.0.0.1:8810",
    "cluster_secret_file": "secret",
}


def test_several_replicas_need_all_that_replicas_share() -> None:
    assert load_config({}, OF_REPLICAS).replicas == 3
    assert load_config({}, {"replicas": "1"}).replicas == 1
    for missing, said in (
        (("shard",), "replicas = 3 needs shard"),
        (("database_url",), "replicas = 3 needs PostgreSQL"),
        (("cluster_listen", "cluster_secret_file"), "replicas = 3 needs cluster_listen"),
    ):
        given = {name: value for name, value in OF_REPLICAS.items() if name not in missing}
        with pytest.raises(ConfigError, match=said):
            load_config({}, given)


@pytest.mark.parametrize("count", ["0", "33", "many"])
def test_a_shard_has_one_to_32_replicas(count: str) -> None:
    with pytest.raises(ConfigError, match="replicas"):
        load_config({}, {**OF_REPLICAS, "replicas": count})
