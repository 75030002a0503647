# The service next to a GPU, or without one. CUDA's libraries come from the Python packages of
# requirements/gpu.txt, the driver from the host (NVIDIA Container Toolkit):
#   docker build -t warpwright .
#   docker run --rm --gpus all -p 127.0.0.1:8000:8000 warpwright
ARG BASE=python:3.12-slim

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /srv/venv
COPY requirements /build/requirements
RUN /srv/venv/bin/pip install --require-hashes -r /build/requirements/gpu.txt
# The build backend stays out of the image that ships.
RUN python -m venv /build/venv \
    && /build/venv/bin/pip install --require-hashes -r /build/requirements/build.txt
COPY . /build/source
RUN /build/venv/bin/python -m pip wheel --no-deps --no-build-isolation \
        --wheel-dir /build/wheels /build/source \
    && /srv/venv/bin/pip install --no-deps /build/wheels/*.whl

FROM ${BASE}
ENV PATH=/srv/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    WARPWRIGHT_HOST=0.0.0.0 \
    WARPWRIGHT_PORT=8000 \
    WARPWRIGHT_ALLOWED_HOSTS=localhost \
    WARPWRIGHT_CACHE=/var/cache/warpwright
RUN useradd --system --uid 10001 --no-create-home warpwright \
    && install -d -o warpwright -g warpwright /var/cache/warpwright
COPY --from=build /srv/venv /srv/venv
USER warpwright
WORKDIR /var/cache/warpwright
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f\"http://127.0.0.1:{os.environ['WARPWRIGHT_PORT']}/readyz\", timeout=4)"]
ENTRYPOINT ["warpwright"]
CMD ["serve"]
