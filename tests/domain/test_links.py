"""Which addresses may become a link."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.links import LONGEST, web_address


@pytest.mark.parametrize(
    "text",
    [
        "https://status.example.com",
        "http://status.example.com:8080/history?from=1#now",
        "HTTPS://Status.example.com/",
        "https://[::1]/",
    ],
)
def test_an_address_of_the_web_stays_as_it_is(text: str) -> None:
    assert web_address(f"  {text} ") == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("javascript:alert(4)", "begins with https"),
        ("JavaScript://status.example.com/%0aalert(4)", "begins with https"),
        ("java\tscript:alert(4)", "without blanks"),
        ("data:text/html,<script>", "begins with https"),
        ("//status.example.com", "begins with https"),
        ("status.example.com", "begins with https"),
        ("https:status.example.com", "begins with https"),
        ("https:///status.example.com", "with a host"),
        ("https://", "with a host"),
        ("https://user@status.example.com", "without a name"),
        ("https://status.example.com\\@evil.example", "backslashes"),
        ("https://status.example.com:port/", "such as https"),
        ("https://[::1", "such as https"),
        ("https://status.example.com/\u202e", "control characters"),
        ("https://status.example.com/" + "a" * LONGEST, "at most"),
        ("", "begins with https"),
    ],
)
def test_anything_else_says_what_to_write(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        web_address(text)


@given(st.text(max_size=60))
def test_what_passes_is_http_with_a_host(text: str) -> None:
    try:
        address = web_address(text)
    except ValueError:
        return
    parts = urlsplit(address)
    assert parts.scheme in ("http", "https")
    assert parts.hostname
