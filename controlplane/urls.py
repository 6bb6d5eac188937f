"""Which view answers which path; the hot paths are routed in ``asgi`` before Django sees them."""

from django.urls import URLPattern, URLResolver, include, path

from controlplane.api.v1 import api

urlpatterns: list[URLPattern | URLResolver] = [
    path("api/v1/", api.urls),
    path("", include("dashboard.urls")),
]
