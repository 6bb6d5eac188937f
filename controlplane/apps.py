"""Django's application record of the control plane."""

from django.apps import AppConfig


class ControlPlaneConfig(AppConfig):
    """The one Django app that owns models."""

    name = "controlplane"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register what ``manage.py check`` asks."""
        from controlplane import checks  # noqa: F401
