# One node: one process on one data directory. Every RUN, HEALTHCHECK and start command below is a
# command of the Makefile, which runs them where no Docker is (tests/unit/test_dockerfile.py).
#
#   docker build -t curlew .
#   docker run --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges \
#     -v curlew-data:/data -v ./tls:/tls:ro -p 8710:8710 -e CURLEW_ADMIN_KEY_FILE=/data/admin.key \
#     -e CURLEW_TLS_CERT_FILE=/tls/cert.pem -e CURLEW_TLS_KEY_FILE=/tls/key.pem curlew
#
# The node brings its database to its schema, then serves. It listens on all addresses of the
# container, so without a certificate (or CURLEW_PLAINTEXT, where a proxy has one) and a first key
# it refuses to start. It writes to /data only and needs no shell. compose.yaml adds a PostgreSQL.

FROM python:3.11-slim-bookworm AS build
WORKDIR /curlew
COPY requirements/build.txt requirements/run.txt requirements/
RUN python3 -m venv .venv
RUN .venv/bin/python -m pip install --quiet --no-build-isolation --require-hashes -r requirements/build.txt
RUN .venv/bin/python -m pip install --quiet --no-build-isolation --require-hashes -r requirements/run.txt
COPY pyproject.toml README.md ./
COPY app app
COPY migrations migrations
COPY clients/python clients/python
RUN .venv/bin/python -m pip install --quiet --no-build-isolation --no-deps --editable .
RUN .venv/bin/python -m pip install --quiet --no-build-isolation --no-deps --editable clients/python
RUN mkdir -p -m 700 data

FROM python:3.11-slim-bookworm
WORKDIR /curlew
COPY --from=build /curlew /curlew
COPY --from=build --chown=10001:10001 --chmod=700 /curlew/data /data
ENV CURLEW_HOST=0.0.0.0 CURLEW_DATA_DIR=/data PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
VOLUME /data
EXPOSE 8710
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s CMD [".venv/bin/python", "-m", "app.health_check"]
ENTRYPOINT [".venv/bin/curlew"]
CMD ["serve", "--migrate"]
