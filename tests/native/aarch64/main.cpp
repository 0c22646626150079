// Runs the native cases that were linked in, at all levels of the (emulated) machine.
#include <cstdio>

#include "cpu/kernels/levels.h"
#include "native_test.h"
#include "pyturbo/work.h"

namespace pyturbo::generated {
std::vector<const KernelTable*> pyturbo_tables();
std::vector<const KernelTable*> pyturbo_tables() { return {}; }  // the cases have no shaders
std::vector<KernelWork> pyturbo_works();
std::vector<KernelWork> pyturbo_works() { return {}; }
}  // namespace pyturbo::generated

int main() {
  for (const pyturbo::cpu::Level* level : pyturbo::cpu::levels()) std::printf("level %s\n", level->name);
  for (const NativeCase& each : native_cases()) {
    each.run();
    std::printf("%s passed\n", each.name);
  }
}
