"""A hash chain over the audit, made by the database itself."""

from pathlib import Path

from django.db import migrations, models

SQL = (Path(__file__).parent / "sql" / "0007_audit_chain.sql").read_text(encoding="utf-8")


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0006_redelivered")]

    operations = [
        migrations.CreateModel(
            name="AuditLink",
            fields=[
                ("seq", models.BigIntegerField(primary_key=True, serialize=False)),
                ("entry_id", models.BigIntegerField(unique=True)),
                ("hash", models.BinaryField(max_length=32)),
            ],
            options={"db_table": "audit_link"},
        ),
        migrations.RunSQL(SQL),
    ]
