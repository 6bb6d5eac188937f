"""The OpenAPI document and the routes that answer are the same set."""

import json
import re
from typing import Any

import pytest

from controlplane.api.hot.routes import ROUTES
from controlplane.api.v1 import api


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """As it is served."""
    return json.loads(json.dumps(api.get_openapi_schema(path_prefix="/api/v1/"), default=str))


def test_every_hot_route_is_described_and_nothing_else_of_the_gateways(
    document: dict[str, Any],
) -> None:
    routed = {
        (method, re.sub(r"\(\?P<(\w+)>[^)]*\)", r"{\1}", pattern.pattern))
        for method, pattern, _ in ROUTES
    }
    described = {
        (method.upper(), path)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if {"gateway", "health"} & set(operation.get("tags", []))
    }
    assert described == routed


def test_every_reference_is_defined(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    wanted = set(re.findall(r'"#/components/schemas/([^"]+)"', text))
    assert {"Batch", "InstanceStatus", "Snapshot"} <= wanted
    assert wanted <= set(document["components"]["schemas"])


def test_operation_ids_are_unique(document: dict[str, Any]) -> None:
    ids = [
        operation["operationId"]
        for methods in document["paths"].values()
        for operation in methods.values()
        if "operationId" in operation
    ]
    assert len(ids) == len(set(ids))
