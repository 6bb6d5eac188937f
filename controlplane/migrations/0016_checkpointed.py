"""What a restart of an instance would begin with, as it says so itself."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0015_two_person")]
    operations = [
        migrations.AddField(
            model_name="instance",
            name="checkpointed_generation",
            field=models.BigIntegerField(null=True),
        ),
    ]
