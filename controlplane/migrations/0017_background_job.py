"""A background job that fails is told to people, and not to the worker's log alone."""

from pathlib import Path

from django.db import migrations

SQL = (Path(__file__).parent / "sql" / "0017_background_job.sql").read_text(encoding="utf-8")


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0016_checkpointed")]
    operations = [migrations.RunSQL(SQL)]
