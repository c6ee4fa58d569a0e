"""The secret of a cluster: what is made of it, and what is not said of it."""

from pathlib import Path

import pytest

from app.runtime.secure.secret_files import UnusableSecretFile, write_secret
from app.runtime.secure.secret_key import SecretKey


def key_in(path: Path, content: bytes) -> SecretKey:
    path.unlink(missing_ok=True)
    write_secret(path, content)
    key = SecretKey.of(path)
    assert key is not None
    return key


def test_each_purpose_has_a_secret_of_its_own(tmp_path: Path) -> None:
    key = key_in(tmp_path / "key", b"k" * 32)
    assert key.derive("audit") == key_in(tmp_path / "key", b"k" * 32 + b"\n").derive("audit")
    assert len({key.derive("audit"), key.derive("pairs"), key.derive("fingerprint")}) == 3
    other = key_in(tmp_path / "other", b"l" * 32)
    assert other.derive("audit") != key.derive("audit")
    assert other.fingerprint != key.fingerprint


def test_nothing_of_it_is_shown(tmp_path: Path) -> None:
    key = key_in(tmp_path / "key", b"k" * 32)
    assert repr(key) == f"SecretKey({key.fingerprint})"
    assert "kkk" not in f"{key!r} {key}"


def test_a_short_one_is_refused_and_not_quoted(tmp_path: Path) -> None:
    with pytest.raises(UnusableSecretFile, match="openssl rand -hex 32") as caught:
        key_in(tmp_path / "key", b"hush" * 7 + b"\n\n\n\n\n")
    assert "hush" not in str(caught.value)
    assert SecretKey.of(None) is None


def test_a_secret_file_is_its_owners_and_never_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "key"
    write_secret(file, b"first")
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        write_secret(file, b"second")
    assert file.read_bytes() == b"first"


def test_a_lost_file_says_how_to_go_on(tmp_path: Path) -> None:
    with pytest.raises(UnusableSecretFile, match=r"Bring back the copy .* openssl rand -hex 32"):
        SecretKey.of(tmp_path / "lost.key")
