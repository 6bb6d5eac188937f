"""Which view answers which path; the hot paths are routed in ``asgi`` before Django sees them."""

from django.urls import URLPattern, URLResolver, include, path
from django.views.decorators.csrf import csrf_exempt

from controlplane.api.door import no_such_path
from controlplane.api.v1 import api

urlpatterns: list[URLPattern | URLResolver] = [
    path("api/v1/", api.urls),
    path("api/<path:path>", csrf_exempt(no_such_path)),
    path("", include("dashboard.urls")),
]
