#include "native_test.h"

#include <stdexcept>
#include <vector>

#include "core/registry.h"

namespace pyturbo::generated {
std::vector<const KernelTable*> test_tables();
}

void run_native_case(const std::string& name) {
  for (const NativeCase& known : native_cases())
    if (name == known.name) return known.run();
  throw std::runtime_error("no native case named " + name);
}

void register_test_kernels() {
  for (const pyturbo::KernelTable* table : pyturbo::generated::test_tables()) pyturbo::registry().add(*table);
}
