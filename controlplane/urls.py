"""Which view answers which path; the hot paths are routed in ``asgi`` before Django sees them."""

from django.urls import URLPattern, URLResolver

urlpatterns: list[URLPattern | URLResolver] = []
