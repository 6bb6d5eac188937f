"""Two that derive minutes of one hour wait for each other, as long as a statement may take.

At two seconds, which is what others wait for a lock, a rebuild beside the usual work would be told
as a derivation that fails.
"""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0020_quarters")]
    operations = [
        migrations.RunSQL(
            "ALTER FUNCTION switchgear_sum_five_minutes() SET lock_timeout = '30s'",
            "ALTER FUNCTION switchgear_sum_five_minutes() RESET lock_timeout",
        )
    ]
