# One image, four roles (web, worker, beat, gateway): the command decides. See docker-compose.yml.
FROM python:3.13-slim AS build
WORKDIR /app
COPY requirements.lock ./
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir --require-hashes -r requirements.lock

FROM python:3.13-slim
RUN useradd --system --create-home --uid 10001 switchgear
WORKDIR /app
COPY --from=build /venv /venv
COPY manage.py ./
COPY controlplane ./controlplane
COPY dashboard ./dashboard
COPY workers ./workers
COPY gateway ./gateway
COPY templates ./templates
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    DJANGO_SETTINGS_MODULE=controlplane.settings SWITCHGEAR_VAR=/var/lib/switchgear
RUN mkdir -p /var/lib/switchgear && chown switchgear /var/lib/switchgear \
    && SWITCHGEAR_SECRET_KEY=no-secret-only-for-offline-commands-0000 DATABASE_URL=postgresql://build@localhost/build \
       SWITCHGEAR_VAR=/app/var python manage.py collectstatic --noinput
ENV SWITCHGEAR_STATIC=/app/var/static
USER switchgear
EXPOSE 8000 8800
CMD ["uvicorn", "controlplane.asgi:application", "--host", "0.0.0.0", "--port", "8000", \
     "--timeout-keep-alive", "75", "--timeout-graceful-shutdown", "3", "--no-access-log"]
