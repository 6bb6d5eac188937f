"""Whom a gateway trusts: ``ca_file``, the host's store, and what ``--check`` says of either."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from gateway import trust
from gateway.__main__ import main
from gateway.config_file import ConfigError, parse
from tests.certificates import Authority

FILE = """
[gateway]
name = "edge"
[control_plane]
url = "{url}"
token = "t"
{control_plane}
[[providers]]
name = "openai"
base_url = "{base_url}"
{provider}
[[routes]]
name = "assistant"
targets = [{{ provider = "openai", model = "m" }}]
"""


def text_of(**changes: str) -> str:
    fields = {
        "url": "https://switchgear.test",
        "base_url": "https://openai.test/v1",
        "control_plane": "",
        "provider": "",
    }
    return FILE.format(**(fields | changes))


def test_each_side_has_an_authority_of_its_own(authority: Authority, tmp_path: Path) -> None:
    """The one of a private model server must not speak for every other provider."""
    other = Authority.in_folder(tmp_path).file
    config = parse(
        text_of(control_plane=f'ca_file = "{authority.file}"', provider=f'ca_file = "{other}"'), {}
    )
    assert config.control_plane is not None
    assert config.control_plane.ca == authority.file.read_text()
    assert config.providers[0].ca == other.read_text()
    assert "CERTIFICATE" not in repr(config)


def test_an_authority_is_trusted_beside_the_hosts_and_nothing_is_left_unchecked(
    authority: Authority,
) -> None:
    hosts, both = trust.context(""), trust.context(authority.file.read_text())
    assert len(both.get_ca_certs()) == len(hosts.get_ca_certs()) + 1
    for context in (hosts, both):
        assert context.check_hostname
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("holds", "says"),
    [
        (None, "No such file"),
        (b"", "is not a PEM file of certificates"),
        (b"\xff\0", "is not a PEM file of certificates"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "is not a PEM file"),
    ],
    ids=["missing", "empty", "binary", "damaged"],
)
@pytest.mark.parametrize("of", ["control_plane", "providers[0]"])
def test_check_names_the_key_of_a_file_that_cannot_be_used(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    authority: Authority,
    holds: bytes | None,
    says: str,
    of: str,
) -> None:
    ca, file = tmp_path / "ca.pem", tmp_path / "gateway.toml"
    if holds is not None:
        ca.write_bytes(holds)
    line, good = f'ca_file = "{ca}"', f'ca_file = "{authority.file}"'
    bad_first = of == "control_plane"
    file.write_text(
        text_of(control_plane=line if bad_first else good, provider=good if bad_first else line)
    )
    assert main(["--config", str(file), "--check"]) == 2
    said = capsys.readouterr().err
    assert f"{of}.ca_file: {ca}: {says}" in said


def test_a_certificate_of_a_server_is_no_authority(authority: Authority, tmp_path: Path) -> None:
    leaf = tmp_path / "leaf.pem"
    authority.ca.issue_cert("localhost").cert_chain_pems[0].write_to_path(leaf)
    with pytest.raises(ConfigError, match="holds no certificate of an authority"):
        parse(text_of(provider=f'ca_file = "{leaf}"'), {})


def test_an_authority_is_for_https(authority: Authority) -> None:
    with pytest.raises(ConfigError, match=r"providers\[0\]\.ca_file: is for https"):
        parse(text_of(base_url="http://a", provider=f'ca_file = "{authority.file}"'), {})


def test_a_host_without_certificates_is_told_before_a_port_is_bound(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = ssl.get_default_verify_paths()
    none = {"openssl_cafile": str(tmp_path / "no.pem"), "openssl_capath": str(tmp_path / "no")}
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths._replace(**none))
    with pytest.raises(ConfigError, match=r"base_url: .* this host has no certificates"):
        parse(text_of(), {})
    parse(text_of(url="http://a", base_url="http://b"), {})
    assert parse(text_of(), {"SSL_CERT_FILE": str(authority.file)})
    assert parse(text_of(), {"SSL_CERT_DIR": str(authority.file.parent)})
    own = f'ca_file = "{authority.file}"'
    assert parse(text_of(control_plane=own, provider=own), {})


def test_a_store_that_is_named_and_not_there_is_told(tmp_path: Path) -> None:
    """OpenSSL would go on without a word, and every provider seem to be an impostor."""
    with pytest.raises(ConfigError, match=r"SSL_CERT_FILE names /nowhere\.pem: No such file"):
        parse(text_of(), {"SSL_CERT_FILE": "/nowhere.pem"})
