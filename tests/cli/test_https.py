"""The command line against a control plane whose certificate is of a private authority."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from controlplane.cli import main
from controlplane.cli.client import UNAVAILABLE, Client, Settings
from tests.certificates import Authority

ASKED: list[str] = []


class Answering(BaseHTTPRequestHandler):
    """Says an empty object to everybody."""

    def do_GET(self) -> None:
        ASKED.append(self.headers["authorization"])
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.in_folder(tmp_path)


@pytest.fixture
def server(authority: Authority) -> Iterator[str]:
    context = authority.context()
    ASKED.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"https://localhost:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def test_a_private_authority_is_trusted_by_the_environment(
    server: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    assert Client(Settings(server, "t0ken")).get("/circuits") == {}
    assert ASKED == ["Bearer t0ken"]


@pytest.mark.parametrize("named", [None, "/nowhere/ca.pem"])
def test_without_it_the_way_out_is_told_and_no_token_is_sent(
    server: str,
    named: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SWITCHGEAR_URL", server)
    monkeypatch.setenv("SWITCHGEAR_TOKEN", "t0ken")
    if named:
        monkeypatch.setenv("SSL_CERT_FILE", named)
    else:
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    assert main(["get", "circuits"]) == UNAVAILABLE
    said = capsys.readouterr().err
    assert said.startswith(f"switchgear: the certificate of {server} is not trusted: ")
    assert "set SSL_CERT_FILE to a file with the certificate of its authority" in said
    assert (f"names {named}, which is not there" in said) is (named is not None)
    assert "Traceback" not in said
    assert ASKED == []
