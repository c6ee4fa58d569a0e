"""Certificates that are read again, and what is not taken for one."""

import errno
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from app.runtime.secure.secret_files import (
    SECRET_FILE_BYTES_MAX,
    UnusableSecretFile,
    read_secret,
)
from app.runtime.secure.tls_files import TlsFiles, UnusableCertificate
from tests.support.clients.tls import TlsPlace


def files_of(place: TlsPlace, authorities: Path | None = None) -> TlsFiles:
    made = TlsFiles.of(place.cert_file, place.key_file, authorities)
    assert made is not None
    return made


def test_old_versions_of_tls_are_not_spoken(tmp_path: Path) -> None:
    context = files_of(TlsPlace(tmp_path)).context()
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.verify_mode is ssl.CERT_NONE


def test_without_files_there_is_no_tls() -> None:
    assert TlsFiles.of(None, None, None) is None


def test_a_new_certificate_is_used_once_its_key_is_there_too(tmp_path: Path) -> None:
    place = TlsPlace(tmp_path)
    files = files_of(place)
    first = files.context()
    assert not files.refresh()
    assert files.context() is first
    key = place.key_file.read_bytes()
    place.issue()
    new_key = place.key_file.read_bytes()
    place.key_file.write_bytes(key)
    assert not files.refresh(), "the certificate is new, its key is not there yet"
    assert files.context() is first
    place.key_file.write_bytes(new_key)
    assert files.refresh()
    assert files.context() is not first


def test_files_that_are_gone_leave_the_certificate_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = TlsPlace(tmp_path)
    files = files_of(place)
    first = files.context()
    place.cert_file.unlink()
    assert not files.refresh()
    assert files.context() is first
    assert "the one before stays" in caplog.text
    caplog.clear()
    assert not files.refresh()
    assert not caplog.text, "it is said once"


def test_what_could_not_be_read_for_once_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place = TlsPlace(tmp_path)
    files = files_of(place)
    first = files.context()
    place.issue()

    def no_descriptor(*_given: object, **_named: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as lacking:
        lacking.setattr(ssl.SSLContext, "load_cert_chain", no_descriptor)
        assert not files.refresh()
        assert not files.refresh()
    assert caplog.text.count("the one before stays") == 1
    assert files.context() is first
    assert files.refresh()
    assert files.context() is not first


def test_clients_are_asked_for_a_certificate_where_authorities_are_named(tmp_path: Path) -> None:
    place = TlsPlace(tmp_path)
    assert files_of(place, place.authority_file).context().verify_mode is ssl.CERT_OPTIONAL


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("other key", "the key is of another certificate"),
        ("no PEM", "it is not PEM"),
        ("readable key", "chmod go="),
        ("no authorities", "tls_client_ca_file"),
        ("key with a password", "has a password"),
    ],
)
def test_it_is_said_what_is_wrong_with_the_files(tmp_path: Path, broken: str, words: str) -> None:
    place = TlsPlace(tmp_path)
    authorities = None
    if broken == "other key":
        place.key_file.write_bytes(place.authority.issue_cert("b").private_key_pem.bytes())
    elif broken == "no PEM":
        place.cert_file.write_text("certificate")
    elif broken == "readable key":
        place.key_file.chmod(0o644)
    elif broken == "key with a password":
        key = load_pem_private_key(place.key_file.read_bytes(), None)
        how = BestAvailableEncryption(b"hush")
        place.key_file.write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how),
        )
    else:
        authorities = tmp_path / "none.pem"
    with pytest.raises(UnusableCertificate, match=words) as caught:
        files_of(place, authorities)
    assert "PRIVATE" not in str(caught.value)


def test_a_secret_is_read_whole_and_from_private_files_only(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("hush")
    file.chmod(0o600)
    assert read_secret(file, "secret_key_file") == b"hush"
    file.chmod(0o640)
    if file.stat().st_uid != 0:
        with pytest.raises(UnusableSecretFile, match="may be read"):
            read_secret(file, "secret_key_file")
    file.chmod(0o604)
    with pytest.raises(UnusableSecretFile, match="chmod go= ") as caught:
        read_secret(file, "secret_key_file")
    assert "hush" not in str(caught.value)
    file.chmod(0o600)
    file.write_bytes(b"x" * (SECRET_FILE_BYTES_MAX + 1))
    with pytest.raises(UnusableSecretFile, match="has over"):
        read_secret(file, "secret_key_file")
    with pytest.raises(UnusableSecretFile, match="No such file"):
        read_secret(tmp_path / "none", "secret_key_file")


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ({"not_after": datetime(2020, 1, 1, tzinfo=UTC)}, "has expired (2020-01-01T00:00:00"),
        (
            {
                "not_before": datetime(2900, 1, 1, tzinfo=UTC),
                "not_after": datetime(2901, 1, 1, tzinfo=UTC),
            },
            "is valid from 2900-01-01T00:00:00",
        ),
        ({}, ""),
    ],
)
def test_a_certificate_out_of_its_time_is_used_and_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, times: dict[str, datetime], words: str
) -> None:
    place = TlsPlace(tmp_path)
    issued = place.authority.issue_cert(
        "localhost", not_before=times.get("not_before"), not_after=times.get("not_after")
    )
    place.key_file.write_bytes(issued.private_key_pem.bytes())
    place.cert_file.write_bytes(issued.cert_chain_pems[0].bytes())
    assert files_of(place).context() is not None
    assert words in caplog.text
    assert bool(caplog.text) is bool(words)
    assert ("the other side refuses it" in caplog.text) is bool(words)


def test_a_certificate_that_is_not_there_is_named(tmp_path: Path) -> None:
    place = TlsPlace(tmp_path)
    place.cert_file.unlink()
    with pytest.raises(UnusableCertificate, match=r"tls_cert_file = .* is not there"):
        files_of(place)
