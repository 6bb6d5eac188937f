"""What Postgres holds. Rules that must never be broken are constraints here, not code elsewhere.

Invariant: event tables (attempt, refusal, outcome, transition, task, rollups) are append-only or
derived; they live in ``migrations/sql`` and are read and written by named SQL, not through models.
"""

from controlplane.models.answers import IdempotentAnswer
from controlplane.models.audit import AuditEntry, AuditLink
from controlplane.models.desired import (
    BreakerPolicy,
    ConfigGeneration,
    GatewayConfig,
    Override,
    Probe,
    RetryBudget,
    Revision,
    Route,
)
from controlplane.models.fleet import Gateway, GatewayToken, Instance, MissingBatches
from controlplane.models.marks import Annotation, Claim
from controlplane.models.pending import PendingOverride
from controlplane.models.people import Person, Role, ServiceToken, SignInTries
from controlplane.models.pricing import FxRate, Price
from controlplane.models.providers import Provider
from controlplane.models.state import (
    BudgetState,
    Circuit,
    CircuitState,
    Delivery,
    LocalOverride,
)

__all__ = [
    "Annotation",
    "AuditEntry",
    "AuditLink",
    "BreakerPolicy",
    "BudgetState",
    "Circuit",
    "CircuitState",
    "Claim",
    "ConfigGeneration",
    "Delivery",
    "FxRate",
    "Gateway",
    "GatewayConfig",
    "GatewayToken",
    "IdempotentAnswer",
    "Instance",
    "LocalOverride",
    "MissingBatches",
    "Override",
    "PendingOverride",
    "Person",
    "Price",
    "Probe",
    "Provider",
    "RetryBudget",
    "Revision",
    "Role",
    "Route",
    "ServiceToken",
    "SignInTries",
]
