#!/usr/bin/env bash
# Without arguments: the whole table, into RESULTS.md, in a quarter of an hour.
# With arguments: see --help; what it measures goes into run/results.md.
set -euo pipefail
cd "$(dirname "$0")"
if [ $# -eq 0 ]; then set -- --out RESULTS.md; fi
exec python3 -B -m peers "$@"
