"""A circuit's minutes summed to five, for series of a day."""

from pathlib import Path

from django.db import migrations

SQL = (Path(__file__).parent / "sql" / "0018_five_minutes.sql").read_text(encoding="utf-8")
UNDO = """
DROP TABLE rollup_circuit_five_minutes;
DROP FUNCTION switchgear_sum_five_minutes() CASCADE;
"""


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0017_background_job")]
    operations = [migrations.RunSQL(SQL, UNDO)]
