"""The hour grains by one key at a time, for weekly reports."""

from pathlib import Path

from django.db import migrations

_SQL = Path(__file__).parent / "sql" / "0008_hour_split.sql"


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0007_audit_chain")]

    operations = [
        migrations.RunSQL(
            _SQL.read_text(encoding="utf-8"),
            "DROP FUNCTION switchgear_split_hours(timestamptz, timestamptz);"
            " DROP TABLE rollup_hour_rate; DROP TABLE rollup_hour_split;",
        )
    ]
