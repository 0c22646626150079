// Values of GGUF blocks as shaders/gguf has them, for cases without shaders.
#pragma once

#include <cstdint>
#include <vector>

struct GgufType {
  uint32_t type, block, block_bytes;  // the template parameters of its kernels
  std::vector<uint32_t> halves;       // bytes of a block where its scales in f16 are; none: byte 0 is E8M0
};

const std::vector<GgufType>& gguf_types();

// The `count` values of a row of blocks.
std::vector<float> gguf_values(const GgufType& type, const uint8_t* row, uint32_t count);
