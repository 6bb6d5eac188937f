"""The audit is guarded by privilege too; who owns it is settled after each migrate."""

from pathlib import Path

from django.db import migrations

SQL = (Path(__file__).parent / "sql" / "0011_audit_privilege.sql").read_text(encoding="utf-8")


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0010_raw_dropped")]

    operations = [migrations.RunSQL(SQL)]
