"""The API's reference page: whole, and offline."""

import re

import pytest
from django.test import Client

from controlplane.api.reference import operations
from controlplane.api.v1 import api

pytestmark = pytest.mark.django_db


def test_every_operation_of_the_document_is_on_the_page() -> None:
    page = Client().get("/api/v1/docs")
    assert page.status_code == 200
    text = page.content.decode()
    paths = api.get_openapi_schema()["paths"]
    for path, verbs in paths.items():
        for verb in verbs:
            assert f"<code>{verb.upper()} {path}</code>" in text
    told = [one for _, found in operations(api.get_openapi_schema()) for one in found]
    assert len(told) == sum(len(verbs) for verbs in paths.values())


def test_the_page_needs_nothing_from_elsewhere() -> None:
    text = Client().get("/api/v1/docs").content.decode()
    assert "<script" not in text
    assert not re.search(r'(?:src|href)="(?:https?:)?//', text)


def test_the_page_names_its_icon_so_that_no_browser_asks_for_another() -> None:
    text = Client().get("/api/v1/docs").content.decode()
    assert re.search(r'<link rel="icon" href="/static/dashboard/icon[^"]*\.svg"', text)
