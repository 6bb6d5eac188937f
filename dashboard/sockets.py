"""Which consumer answers which websocket path."""

from django.urls import URLPattern, URLResolver, path

from dashboard.consumers import NewsConsumer, WallConsumer

websocket_urlpatterns: list[URLPattern | URLResolver] = [
    path("ws/wall", WallConsumer.as_asgi()),
    path("ws/news", NewsConsumer.as_asgi()),
]
