"""The product's own settings, on the test session's Postgres.

Importing `embedded` fixes DATABASE_URL before the settings read it; no server starts here.
"""

import os

from tests import embedded

assert embedded.POSTGRES.dsn()
os.environ.setdefault("SWITCHGEAR_SECRET_KEY", "only-for-tests-" + "0" * 40)

from controlplane.settings import *  # noqa: E402, F403

# Static files come from the finders; a checkout that never collected them is no warning.
STATIC_ROOT = None

# A password of a test is no secret, and the real hasher takes a second of each test that logs in.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

# A test's own transaction may stand idle for as long as a busy machine makes it; the hot paths keep
# the product's limits.
_OPTIONS = DATABASES["default"]["OPTIONS"]  # noqa: F405
_OPTIONS["options"] = _OPTIONS["options"].replace("session_timeout=5000", "session_timeout=120000")
