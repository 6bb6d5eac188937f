"""``/api/v1/docs``: the OpenAPI document as a page that needs nothing from anywhere else.

Invariant: everything on the page comes from the document itself, so no route can be missing, and it
works offline: no script, no CDN.
"""

from __future__ import annotations

import json
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from ninja import NinjaAPI
from ninja.openapi.docs import DocsBase

_VERBS = ("get", "post", "put", "patch", "delete")


class Reference(DocsBase):
    """The page."""

    def render_page(self, request: HttpRequest, api: NinjaAPI, **kwargs: Any) -> HttpResponse:
        """Every operation by its tag, with what it takes."""
        document = api.get_openapi_schema()
        context = {
            "title": document["info"]["title"],
            "about": document["info"].get("description", ""),
            "document_url": self.get_openapi_url(api, kwargs),
            "tags": operations(document),
        }
        return render(request, "api/reference.html", context)


def operations(document: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    """The operations of a document, by tag and in the document's order."""
    tags: dict[str, list[dict[str, Any]]] = {}
    for path, verbs in document["paths"].items():
        for verb in _VERBS:
            if verb in verbs:
                told = _operation(path, verb, verbs[verb])
                tags.setdefault(next(iter(verbs[verb].get("tags", [])), "other"), []).append(told)
    return list(tags.items())


def _operation(path: str, verb: str, found: dict[str, Any]) -> dict[str, Any]:
    content = found.get("requestBody", {}).get("content", {})
    body = next(iter(content.values()), {}).get("schema")
    return {
        "verb": verb.upper(),
        "path": path,
        "summary": found.get("summary", ""),
        "about": found.get("description", ""),
        "parameters": found.get("parameters", []),
        "body": json.dumps(body, indent=2) if body else "",
        "answers": ", ".join(map(str, found.get("responses", {}))),
    }
