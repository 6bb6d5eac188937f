"""Django's command line for the control plane."""

import os
import sys

from django.core.management import execute_from_command_line

from controlplane.env import EnvError
from controlplane.local.environment import recall
from controlplane.local.errors import LaunchError

if __name__ == "__main__":
    try:
        recall()
    except LaunchError as error:
        sys.exit(str(error))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    try:
        execute_from_command_line(sys.argv)
    except EnvError as error:
        sys.exit(str(error))
