"""An aggregate that puts histograms' bins one after another, for series."""

from pathlib import Path

from django.db import migrations

SQL = (Path(__file__).parent / "sql" / "0014_concat.sql").read_text(encoding="utf-8")


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0013_circuit_gone")]
    operations = [migrations.RunSQL(SQL, "DROP AGGREGATE switchgear_concat(bigint[])")]
