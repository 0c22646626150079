#!/bin/sh
# Builds the kernels of native/cpu/kernels for aarch64 and runs simd_cases.cpp under an emulator, at every level.
# Needs g++-aarch64-linux-gnu and qemu-user. Run from the root of the repository.
set -eu
compiler=${CXX:-aarch64-linux-gnu-g++}
out=${1:-build/aarch64}
mkdir -p "$out"
flags="-std=c++20 -O3 -Wall -Wextra -ffp-contract=off -fno-math-errno -fno-trapping-math -fno-strict-aliasing -Inative/include -Inative -Itests/native"
python3 shaders/frontend --library pyturbo --root shaders -I shaders --out "$out" --manifest "$out/manifest.json" \
  $(find shaders -name '*.metal')
stems=$(grep -l '^PYTURBO_BODIES' native/cpu/kernels/*.cpp | xargs -n 1 basename -s .cpp)
echo "#define PYTURBO_LEVELS(X) X(dotprod) X(neon)" > "$out/built_levels.h"
{ echo "#define PYTURBO_SHARED_SOURCES(X)" $(printf 'X(%s) ' $stems); echo "#define PYTURBO_OWN_SOURCES(X)"; } > "$out/body_sources.h"
for level in neon dotprod; do
  case $level in neon) arch= ;; *) arch=-march=armv8.2-a+$level ;; esac
  for source in native/cpu/kernels/*.cpp; do
    case $source in */best_level.cpp | */levels.cpp | */scratch.cpp) continue ;; esac
    "$compiler" $flags -I"$out" $arch -DPYTURBO_LEVEL=$level -DPYTURBO_BASE=$level -c "$source" -o "$out/$(basename "$source" .cpp)-$level.o"
  done
done
cat > "$out/main.cpp" <<'MAIN'
#include <cstdio>
#include "cpu/kernels/levels.h"
#include "native_test.h"
namespace pyturbo::generated {
std::vector<const KernelTable*> pyturbo_tables() { return {}; }  // the cases have no shaders
}
int main() {
  for (const pyturbo::cpu::Level* level : pyturbo::cpu::levels()) std::printf("level %s\n", level->name);
  for (const NativeCase& each : native_cases()) {
    each.run();
    std::printf("%s passed\n", each.name);
  }
}
MAIN
"$compiler" $flags -I"$out" -O1 -static -pthread "$out/main.cpp" tests/native/simd_cases.cpp native/cpu/kernels/levels.cpp \
  native/cpu/kernels/scratch.cpp native/cpu/batch.cpp native/cpu/pool.cpp native/core/error.cpp "$out"/*-neon.o "$out"/*-dotprod.o -o "$out/cases"
qemu-aarch64 "$out/cases"
