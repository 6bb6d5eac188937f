"""``/api/v1``: the people's API, put together. ``path("api/v1/", api.urls)``.

Invariant: every route has an actor (``door.authenticate``) and every error is a problem document.
The library's own docs page loads from a CDN; ours (``reference``) needs nothing from elsewhere.
"""

from __future__ import annotations

from controlplane.api.admin_routes import people_routes, token_routes
from controlplane.api.annotations import claim_router
from controlplane.api.annotations import router as annotations
from controlplane.api.audit import export as audit_export
from controlplane.api.audit import router as audit_routes
from controlplane.api.document import Api
from controlplane.api.door import StrictParser, authenticate, install_errors
from controlplane.api.fleet_routes import circuit_routes, gateways
from controlplane.api.overrides import router as overrides
from controlplane.api.probes import router as probes
from controlplane.api.providers import router as providers
from controlplane.api.reference import Reference
from controlplane.api.reports import router as reports
from controlplane.api.settings_routes import router_of
from controlplane.api.telemetry import task_routes
from controlplane.api.telemetry_faults import router as fault_routes

api = Api(
    title="Switchgear",
    version="1",
    urls_namespace="api-v1",
    description="Control plane for the circuit breakers of LLM gateways.",
    docs=Reference(),
    docs_url="/docs",
    auth=authenticate,
    parser=StrictParser(),
)
install_errors(api)
api.add_router("/gateways", gateways)
api.add_router("/tokens", token_routes)
api.add_router("/people", people_routes)
api.add_router("/circuits", circuit_routes)
api.add_router("/tasks", task_routes)
api.add_router("/telemetry", fault_routes)
api.add_router("/overrides", overrides)
api.add_router("/probes", probes)
api.add_router("/policies", router_of("policies"))
api.add_router("/budgets", router_of("budgets"))
api.add_router("/routes", router_of("routes"))
api.add_router("/providers", providers)
api.add_router("/annotations", annotations)
api.add_router("/claim", claim_router)
api.add_router("/audit", audit_routes)
api.add_router("", audit_export)
api.add_router("/reports", reports)
