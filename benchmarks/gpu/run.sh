#!/bin/sh
# Joins the pieces that benchmarks.gpu.carry wrote and measures: run.sh FOLDER KEPT SECONDS
#
# KEPT is a folder that stays on the machine: pieces are collected there over several visits until
# all are whole, then vLLM is unpacked to KEPT/site. Results are KEPT/results.jsonl and KEPT/served.
set -eu
folder=$(realpath "$1")
kept=$2
seconds=$3
mkdir -p "$kept/pieces" "$kept/site"
if [ ! -e "$kept/site/.complete" ]; then
  cp "$folder"/site.tar.xz.* "$folder/SHA256SUMS" "$kept/pieces/"
  if ! (cd "$kept/pieces" && sha256sum --quiet --check SHA256SUMS); then
    echo "pieces are missing: bring the ones named above" >&2
    exit 2
  fi
  cat "$kept"/pieces/site.tar.xz.* | xz --decompress --threads=0 | tar --extract --directory "$kept/site"
  python3 -m compileall -q -j 0 "$kept/site" >/dev/null 2>&1 || true
  touch "$kept/site/.complete"
fi
export PYTHONPATH="$kept/site:." PYTHONUNBUFFERED=1
nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader
if [ ! -e "$kept/served/served.json" ]; then
  python3 -m benchmarks.gpu.serve --case "$folder/serve.json" --output "$kept/served" --seconds 25
fi
python3 -m benchmarks.gpu.measure --cases "$folder/cases.jsonl" --results "$kept/results.jsonl" \
  --logs "$kept/logs" --seconds "$seconds"
