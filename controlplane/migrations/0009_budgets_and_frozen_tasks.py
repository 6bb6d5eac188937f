"""A table for what buckets held, and which tasks have words that came after their freeze."""

from pathlib import Path

from django.db import migrations

SQL = (Path(__file__).parent / "sql" / "0009_budgets_and_frozen_tasks.sql").read_text(
    encoding="utf-8"
)


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0008_hour_split")]
    operations = [migrations.RunSQL(SQL)]
