"""An index for whose SDK retries beside its gateway."""

from pathlib import Path

from django.db import migrations

SQL = (Path(__file__).parent / "sql" / "0006_redelivered.sql").read_text(encoding="utf-8")


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0005_provider")]
    operations = [migrations.RunSQL(SQL, "DROP INDEX attempt_redelivered")]
