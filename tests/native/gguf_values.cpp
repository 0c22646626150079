#include "gguf_values.h"

#include <metal_stdlib>

using namespace msl;
#pragma GCC diagnostic ignored "-Wunknown-pragmas"  // of the shaders: unroll
#include "../../shaders/gguf/gguf.h"

namespace {

template <uint type, uint block, uint block_bytes>
std::vector<float> values_of(const uint8_t* row, uint32_t count) {
  std::vector<float> values(count);
  const Blocks<type, block, block_bytes> w = {row, count / kUnit};
  for (uint i = 0; i < count / kOctet; ++i)
    dequantize_octet(w, 0, i / kOctets, i % kOctets, values.data() + i * kOctet);
  return values;
}

}  // namespace

const std::vector<GgufType>& gguf_types() {
  static const std::vector<GgufType> types = {
      {2, 32, 18, {0}},       {3, 32, 20, {0, 2}},     {6, 32, 22, {0}},      {7, 32, 24, {0, 2}},
      {8, 32, 34, {0}},       {10, 256, 84, {80, 82}}, {11, 256, 110, {108}}, {12, 256, 144, {0, 2}},
      {13, 256, 176, {0, 2}}, {14, 256, 210, {208}},   {20, 32, 18, {0}},     {23, 256, 136, {0}},
      {39, 32, 17, {}},
  };
  return types;
}

std::vector<float> gguf_values(const GgufType& type, const uint8_t* row, uint32_t count) {
#define INSTANCE(op, number, block, bytes, name) \
  if (type.type == number) return values_of<number, block, bytes>(row, count);
#undef INSTANTIATE_GGUF_AS
#define INSTANTIATE_GGUF_AS INSTANCE
  INSTANTIATE_GGUF(values)
  return {};
}
