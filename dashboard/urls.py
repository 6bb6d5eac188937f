"""The pages of the dashboard."""

from django.urls import URLPattern, URLResolver, path

from dashboard.views import (
    audit,
    budgets,
    circuits,
    find,
    fleet,
    force,
    incident,
    overrides,
    people,
    providers,
    report,
    wall,
)

urlpatterns: list[URLPattern | URLResolver] = [
    path("", wall.page, name="wall"),
    path("log-in", people.log_in, name="login"),
    path("log-out", people.log_out, name="logout"),
    path("incident", incident.page, name="incident"),
    path("incident/annotate", incident.annotate, name="annotate"),
    path("incident/claim", incident.claim, name="claim"),
    path("circuits", circuits.listing, name="circuits"),
    path("circuits/<path:name>", circuits.one, name="circuit"),
    path("find", find.page, name="find"),
    path("tasks/<path:name>", find.task, name="task"),
    path("gateways", fleet.listing, name="gateways"),
    path("overrides", overrides.listing, name="overrides"),
    path("overrides/new", force.new, name="override-new"),
    path("overrides/preview", force.preview, name="override-preview"),
    path("overrides/release-mine", overrides.release_mine, name="override-release-mine"),
    path("overrides/<str:name>", overrides.one, name="override"),
    path("overrides/<str:name>/release", overrides.release, name="override-release"),
    path("overrides/<str:name>/extend", overrides.extend, name="override-extend"),
    path("budgets", budgets.listing, name="budgets"),
    path("budgets/<str:name>", budgets.one, name="budget"),
    path("providers", providers.listing, name="providers"),
    path("providers/<str:name>", providers.one, name="provider"),
    path("report", report.page, name="report"),
    path("report.csv", report.file, name="report-file"),
    path("audit", audit.listing, name="audit"),
]
