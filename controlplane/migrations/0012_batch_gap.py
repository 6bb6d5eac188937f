"""The holes in the numbers of batches, and since when: lost is what stays missing, not what is late."""

from pathlib import Path

import django.db.models.deletion
from django.db import migrations, models

SQL = (Path(__file__).parent / "sql" / "0012_batch_gap.sql").read_text(encoding="utf-8")


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0011_audit_privilege")]
    operations = [
        migrations.RunSQL(SQL),
        migrations.CreateModel(
            name="MissingBatches",
            fields=[
                (
                    "instance",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="missing",
                        serialize=False,
                        to="controlplane.instance",
                    ),
                ),
                ("lost", models.BigIntegerField()),
                ("awaited", models.BigIntegerField()),
            ],
            options={"db_table": "missing_batches", "managed": False},
        ),
    ]
