"""A gateway that claims what it was never told gets a new epoch seldom, and is named."""

from pathlib import Path

from django.db import migrations

SQL = (Path(__file__).parent / "sql" / "0019_epoch_claim.sql").read_text(encoding="utf-8")


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0018_five_minutes")]
    operations = [migrations.RunSQL(SQL)]
