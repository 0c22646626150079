// Names that MSL declares without `using namespace metal`: in the namespace around shaders, because CUDA has
// some of them at global scope.
#pragma once

#include "metal/as_type.h"
#include "metal/packed.h"

namespace msl {

using metal::as_type;
using metal::bfloat;
using metal::half;
using metal::int16_t;
using metal::int32_t;
using metal::int64_t;
using metal::int8_t;
using metal::ptrdiff_t;
using metal::size_t;
using metal::uchar;
using metal::uint;
using metal::uint16_t;
using metal::uint32_t;
using metal::uint64_t;
using metal::uint8_t;
using metal::ulong;
using metal::ushort;

#define PYTURBO_NAMES(T, prefix)   \
  using metal::prefix##2;          \
  using metal::prefix##3;          \
  using metal::prefix##4;          \
  using metal::packed_##prefix##2; \
  using metal::packed_##prefix##3; \
  using metal::packed_##prefix##4;
PYTURBO_ELEMENT_TYPES(PYTURBO_NAMES)
#undef PYTURBO_NAMES

}  // namespace msl
