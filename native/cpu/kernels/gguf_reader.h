// Rows of GGUF blocks as bytes and floats: each value is code * scale + bias. shaders/gguf has the formats.
#pragma once

#include "cpu/kernels/vector.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// How blocks of one type are read.
struct Reader {
  uint32_t type;         // GGML's number
  uint32_t block;        // values of a block
  uint32_t block_bytes;  // its size
  uint32_t group;        // values that share a scale and a bias
  int32_t zero;          // the code of zero where values are (code - zero) * scale, else -1

  // Reads `count` blocks: a byte for each value, if `codes` is given, and a scale and a bias for each group.
  // Writes up to kBytes bytes and kLanes floats past them.
  void (*read)(const uint8_t* blocks, uint32_t count, uint8_t* codes, float* scales, float* biases);
};

// The reader of a type, by GGML's number; null for types without one.
const Reader* gguf_reader(uint32_t type);

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
