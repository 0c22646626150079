// Prints the best level of this machine, or nothing. CMake runs it for PYTURBO_LEVELS=native.
#include <cstdio>

#include "available.h"

int main() {
#define PYTURBO_PRINT(level) \
  if (pyturbo::cpu::has_##level()) return std::puts(#level) < 0;
  PYTURBO_KNOWN_LEVELS(PYTURBO_PRINT)
}
