#!/bin/sh
# Builds the kernels of native/cpu/kernels for aarch64 and runs simd_cases.cpp under an emulator, at every level.
# Needs cmake, g++-aarch64-linux-gnu and qemu-user. Run from the root of the repository.
set -eu
out=${1:-build/aarch64}
cmake -S tests/native/aarch64 -B "$out" -DCMAKE_BUILD_TYPE=Release -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
  -DCMAKE_CXX_COMPILER="${CXX:-aarch64-linux-gnu-g++}"
cmake --build "$out" --parallel
qemu-aarch64 -cpu max "$out/pyturbo"
