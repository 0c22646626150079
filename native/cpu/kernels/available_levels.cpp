// Prints the levels of this machine, best first, as a list of CMake, which runs it for PYTURBO_LEVELS=native.
#include <cstdio>

#include "available.h"

int main() {
#define PYTURBO_PRINT(level) \
  if (pyturbo::cpu::has_##level()) std::fputs(#level ";", stdout);
  PYTURBO_KNOWN_LEVELS(PYTURBO_PRINT)
}
