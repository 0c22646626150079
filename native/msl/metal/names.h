// Names that MSL declares without `using namespace metal`.
#pragma once

#include "metal/as_type.h"
#include "metal/packed.h"

using metal::as_type;
using metal::bfloat;
using metal::half;
using metal::uchar;
using metal::uint;
using metal::ulong;
using metal::ushort;
using metal::operator""h;
#ifndef __clang__
using metal::operator"" H;
using metal::operator"" bf;
using metal::operator"" BF;
#endif

#define PYTURBO_NAMES(T, prefix)   \
  using metal::prefix##2;          \
  using metal::prefix##3;          \
  using metal::prefix##4;          \
  using metal::packed_##prefix##2; \
  using metal::packed_##prefix##3; \
  using metal::packed_##prefix##4;
PYTURBO_ELEMENT_TYPES(PYTURBO_NAMES)
#undef PYTURBO_NAMES
