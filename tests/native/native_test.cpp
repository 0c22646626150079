#include "native_test.h"

#include <execinfo.h>
#include <unistd.h>

#include <csignal>
#include <stdexcept>
#include <vector>

#include "core/kernels.h"

namespace pyturbo::generated {
std::vector<const KernelTable*> test_tables();
}

namespace {

void write_stack(int) {
  void* frames[64];
  backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
}

}  // namespace

void show_stack_on_abort() {
  void* frame;
  backtrace(&frame, 1);  // loads what it needs, which a handler must not do
  std::signal(SIGABRT, write_stack);
}

void run_native_case(const std::string& name) {
  for (const NativeCase& known : native_cases())
    if (name == known.name) return known.run();
  throw std::runtime_error("no native case named " + name);
}

void register_test_kernels() {
  for (const pyturbo::KernelTable* table : pyturbo::generated::test_tables())
    pyturbo::kernel_registry().add(*table);
}
