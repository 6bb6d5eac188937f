"""Derived hours by their quarters, for days that begin within one."""

from pathlib import Path

from django.db import migrations

SQL = (Path(__file__).parent / "sql" / "0020_quarters.sql").read_text(encoding="utf-8")
UNDO = "DROP FUNCTION switchgear_drop_quarters() CASCADE; DROP TABLE rollup_quarter"


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0019_epoch_claim")]
    operations = [migrations.RunSQL(SQL, UNDO)]
