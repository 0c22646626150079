#include "cpu/kernels/gguf_unit_tiles.h"

#include "cpu/kernels/tile_loops.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {
namespace {

template <typename T>
constexpr TileLoops kUnitTiles[kPrecisions] = {
    {multiply_unit_tile<T, 1>, nullptr}, {multiply_unit_tile<T, 3>, multiply_tile<load_unit_floats<T>>}};

}  // namespace

const TileLoops* gguf_tiles(const Reader& reader) {
  return GgufTypes::call(reader.type, [](auto type) { return &kUnitTiles<decltype(type)>[0]; });
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
