"""Event tables, rollups and the audit's guard: plain SQL, in a file that a DBA can read."""

from pathlib import Path

from django.db import migrations

SQL = (Path(__file__).parent / "sql" / "0002_telemetry.sql").read_text(encoding="utf-8")


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0001_initial")]
    operations = [migrations.RunSQL(SQL)]
