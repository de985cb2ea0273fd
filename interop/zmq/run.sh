#!/bin/sh
# Our zmtp against genuine libzmq (pyzmq), in both roles. The venv is made once.
set -eu
cd "$(dirname "$0")"
venv="${KVASIR_ZMQ_VENV:-$HOME/.cache/kvasir/interop/zmq-venv}"
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -c 'import zmq' 2>/dev/null || "$venv/bin/pip" install -q pyzmq msgpack
"$venv/bin/python" -c 'import zmq; print("libzmq", zmq.zmq_version(), "pyzmq", zmq.__version__)'
KVASIR_ZMQ_PYTHON="$venv/bin/python" exec go test -tags interop -race -count=1 "$@" .
