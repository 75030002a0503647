#!/usr/bin/env bash
# Remakes the locked requirement files from pyproject.toml. Needs uv on the PATH.
#   run.txt    the service and the solver, no GPU libraries
#   gpu.txt    run.txt and what a CUDA 13 host compiles, launches and verifies with
#   container.txt  gpu.txt, PostgreSQL's driver and OpenTelemetry: what the image holds
#   build.txt  what a wheel is built with
#   dev.txt    container.txt, build.txt and what the tests, the plots and the build need
#   browser.txt  run.txt and what drives a browser: for make test-browser, over dev.txt
# Every file installs with plain `pip install --require-hashes -r FILE` on Python 3.11 and
# later. Pass --upgrade to move every version.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v uv >/dev/null || { echo "requirements/lock.sh: uv is not on the PATH (pip install uv)" >&2; exit 3; }

lock() { # name, extras...
  local name=$1 extras=()
  shift
  for extra in "$@"; do extras+=(--extra "$extra"); done
  uv pip compile pyproject.toml "${extras[@]}" --universal --python-version 3.11 \
    --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --quiet \
    --output-file "requirements/$name.txt" "${upgrade[@]}"
}

upgrade=("$@")
lock dev gpu postgres otel bench dev
# The smaller sets take their versions from the largest, so that all agree.
upgrade=(--constraint requirements/dev.txt "$@")
lock container gpu postgres otel
lock gpu gpu
lock run
lock browser browser
python3 -c 'import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' |
  uv pip compile - --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
    --no-header --no-annotate --quiet --output-file requirements/build.txt "${upgrade[@]}"
