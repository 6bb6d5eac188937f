"""Remember up to which day raw rows were dropped."""

from pathlib import Path

from django.db import migrations

SQL = (Path(__file__).parent / "sql" / "0010_raw_dropped.sql").read_text(encoding="utf-8")


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0009_budgets_and_frozen_tasks")]
    operations = [migrations.RunSQL(SQL)]
