# The service next to a GPU, or without one. CUDA's libraries come from the Python packages of
# requirements/container.txt, the driver from the host (NVIDIA Container Toolkit):
#   docker build --build-arg COMMIT=$(git rev-parse HEAD) -t warpwright .
#   docker run --rm --gpus all --read-only --tmpfs /tmp -p 127.0.0.1:8000:8000 \
#     -v warpwright-state:/var/lib/warpwright -v warpwright-cache:/var/cache/warpwright warpwright
ARG BASE=python:3.12-slim

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /srv/venv
COPY requirements /build/requirements
RUN /srv/venv/bin/pip install --require-hashes -r /build/requirements/container.txt
# The build backend stays out of the image that ships.
RUN python -m venv /build/venv \
    && /build/venv/bin/pip install --require-hashes -r /build/requirements/build.txt
COPY . /build/source
RUN /build/venv/bin/python -m pip wheel --no-deps --no-build-isolation \
        --wheel-dir /build/wheels /build/source \
    && /srv/venv/bin/pip install --no-deps /build/wheels/*.whl \
    && /srv/venv/bin/pip uninstall --yes pip \
    && /srv/venv/bin/python -m compileall -q -j 0 /srv/venv/lib

FROM ${BASE}
ARG COMMIT=unknown
LABEL org.opencontainers.image.title="Warpwright" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision=${COMMIT}
ENV PATH=/srv/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/var/lib/warpwright \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    CUPY_CACHE_DIR=/var/cache/warpwright/cupy \
    WARPWRIGHT_HOST=0.0.0.0 \
    WARPWRIGHT_PORT=8000 \
    WARPWRIGHT_ALLOWED_HOSTS=localhost \
    WARPWRIGHT_DATABASE=sqlite:////var/lib/warpwright/warpwright.db \
    WARPWRIGHT_PROFILES=/var/lib/warpwright/profiles \
    WARPWRIGHT_CACHE=/var/cache/warpwright
RUN useradd --system --uid 10001 --no-create-home warpwright \
    && install -d -o warpwright -g warpwright /var/cache/warpwright /var/lib/warpwright
COPY --from=build /srv/venv /srv/venv
USER 10001
WORKDIR /var/lib/warpwright
VOLUME ["/var/lib/warpwright", "/var/cache/warpwright"]
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f\"http://127.0.0.1:{os.environ['WARPWRIGHT_PORT']}/readyz\", timeout=4)"]
ENTRYPOINT ["warpwright"]
CMD ["serve"]
