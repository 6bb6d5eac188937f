"""Remember which breakers a status report took off."""

from pathlib import Path

from django.db import migrations

SQL = (Path(__file__).parent / "sql" / "0013_circuit_gone.sql").read_text(encoding="utf-8")


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0012_batch_gap")]
    operations = [migrations.RunSQL(SQL)]
