"""gateway.toml: what is accepted, and that every error names the key and the way out."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from controlplane.domain.circuit import Circuit
from gateway.__main__ import main
from gateway.config_file import ConfigError, load, parse

SMALL = """
[gateway]
name = "edge"
[[providers]]
name = "openai"
base_url = "http://127.0.0.1:9/openai/v1/"
keys = [{ name = "main", secret = "s3cret" }]
[[routes]]
name = "assistant"
[[routes.targets]]
provider = "openai"
model = "gpt-4.1-mini"
"""


def test_small_file_gets_every_default() -> None:
    config = parse(SMALL, {})
    assert (config.gateway.host, config.gateway.port) == ("127.0.0.1", 8800)
    assert config.control_plane is None
    assert config.providers[0].base_url == "http://127.0.0.1:9/openai/v1"
    assert config.routes[0].targets[0].circuit == Circuit("openai", "gpt-4.1-mini")
    assert not config.gateway.require_key
    assert config.providers[0].connect_seconds == 5


def test_secrets_stay_out_of_repr() -> None:
    table = '[control_plane]\nurl = "http://127.0.0.1:1"\ntoken = "tok3n"\n'
    config = parse(SMALL + table, {})
    assert "s3cret" not in repr(config)
    assert "tok3n" not in repr(config)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('name = "edge"', 'nam = "edge"', "gateway.name: is required"),
        (
            'name = "edge"',
            'name = "edge"\nprot = 1',
            "gateway.prot: unknown key; did you mean",
        ),
        ('name = "edge"', 'name = "edge"\nport = 70000', "gateway.port: expected 0 to 65535"),
        ('name = "edge"', 'name = "edge"\nport = true', "gateway.port: expected a whole number"),
        ('name = "edge"', 'name = "edge"\nhost = "0.0.0.0"', "gateway.host: 0.0.0.0 is reachable"),
        ('name = "edge"', 'name = "edge"\nrequire_key = true', "gateway.require_key"),
        ("http://127", "ftp://127", "providers[0].base_url: expected http"),
        (', secret = "s3cret"', "", "providers[0].keys[0].secret: is required"),
        ('secret = "s3cret"', 'secret = "a b"', "providers[0].keys[0].secret: must be printable"),
        (
            'provider = "openai"',
            'provider = "other"',
            "names the provider 'other', known",
        ),
        ('model = "gpt-4.1-mini"', "model = 4", "routes[0].targets[0].model: expected text"),
        ('name = "assistant"', 'name = "x"\nidle_seconds = 0', "routes[0].idle_seconds: expected"),
        ("keys =", "connect_seconds = 0\nkeys =", "providers[0].connect_seconds: expected above 0"),
        ('name = "edge"', 'name = "${NOT_SET}"', "gateway.name: the environment has no NOT_SET"),
        ('[gateway]\nname = "edge"', "[gateway", "not TOML"),
    ],
)
def test_error_names_the_key(old: str, new: str, says: str) -> None:
    assert old in SMALL
    with pytest.raises(ConfigError) as caught:
        parse(SMALL.replace(old, new, 1), {})
    assert says in str(caught.value)


def test_placeholders_come_from_the_environment() -> None:
    text = SMALL.replace('"edge"', '"${NAME:-demo}"\nport = "${PORT}"')
    assert parse(text, {"PORT": "8123"}).gateway.port == 8123
    assert parse(text, {"PORT": "8123"}).gateway.name == "demo"
    with pytest.raises(ConfigError, match=r"gateway\.port: expected a whole number"):
        parse(text, {"PORT": "eighty"})


def test_secret_env_reads_the_named_variable() -> None:
    text = SMALL.replace('secret = "s3cret"', 'secret_env = "OPENAI_KEY"')
    assert parse(text, {"OPENAI_KEY": "abc"}).providers[0].keys[0].secret == "abc"
    with pytest.raises(ConfigError, match="the environment has no OPENAI_KEY"):
        parse(text, {})


def test_callers_make_their_key_required() -> None:
    digest = hashlib.sha256(b"key-1").hexdigest()
    config = parse(SMALL + f'[[callers]]\nkey_sha256 = "{digest}"\ntenant = "search"\n', {})
    assert config.gateway.require_key
    assert config.callers[0].tenant == "search"
    assert not config.callers[0].trusted


def test_demo_file_is_valid_with_and_without_a_control_plane(tmp_path: Path) -> None:
    demo = Path(__file__).parents[2] / "gateway" / "demo.toml"
    env = {"SWITCHGEAR_VAR": str(tmp_path), "SWITCHGEAR_SIMULATOR_URL": "http://127.0.0.1:9"}
    assert load(demo, env).control_plane is None
    env |= {"SWITCHGEAR_URL": "http://127.0.0.1:8000", "SWITCHGEAR_GATEWAY_TOKEN": "t"}
    config = load(demo, env)
    assert config.control_plane is not None
    assert {provider.name for provider in config.providers} == {"openai", "mistral", "groq"}


def test_missing_file_is_said_plainly(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "none.toml", {})


def test_a_file_that_is_not_there_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([]) == 2
    said = capsys.readouterr().err
    assert said == "gateway: gateway.toml: No such file or directory; name it with --config\n"
