# Print a Python that is new enough (3.11), or say what to do. Run by make with any POSIX shell.
# PYTHON, if set, is taken or refused, never replaced.
enough='import sys; sys.exit(sys.version_info < (3, 11))'
for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python}; do
    if command -v "$candidate" >/dev/null 2>&1 && "$candidate" -c "$enough" >/dev/null 2>&1; then
        command -v "$candidate"
        exit 0
    fi
done
if [ -n "$PYTHON" ]; then
    echo "PYTHON=$PYTHON is not a Python of version 3.11 or newer." >&2
else
    echo "Switchgear needs Python 3.11 or newer; this machine has" \
        "$(python3 --version 2>/dev/null || echo 'no python3')." >&2
    echo "Install one (Debian, Ubuntu: apt-get install python3 python3-venv), or name one:" \
        "make up PYTHON=/path/to/python3.12" >&2
fi
exit 1
