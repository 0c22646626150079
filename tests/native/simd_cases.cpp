// CPU bodies at every level of this machine, against plain loops in double. The Python tests see more; these
// also run where there is no Python, under an emulator (run_on_aarch64.sh).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cpu/kernels/levels.h"
#include "gguf_values.h"
#include "native_test.h"

namespace {

using namespace pyturbo;
using namespace pyturbo::cpu;

std::mt19937 random_bits(7);
float random_float() { return std::normal_distribution<float>()(random_bits); }

std::vector<float> random_floats(size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = random_float();
  return values;
}

// A launch that is put together by hand, by index: so these cases also check what reads arguments by name.
struct Call {
  Arguments arguments;
  std::vector<std::vector<uint8_t>> values;
  uint32_t settings[6] = {};  // the function constants, by slot; their first byte is a boolean

  Call() {
    values.reserve(kMaxArguments);
    for (uint32_t i = 0; i < 6; ++i) arguments.constants[i] = &settings[i];
  }
  template <typename T>
  void bind(uint32_t index, std::vector<T>& data) {
    arguments.buffers[index] = data.data();
  }
  template <typename T>
  void set(uint32_t index, T value) {
    values.emplace_back(sizeof value);
    std::memcpy(values.back().data(), &value, sizeof value);
    arguments.buffers[index] = values.back().data();
  }
  // `parameters` are those of the kernel's template, in its order.
  void run(const Level& level, const char* function, const std::vector<ParameterInfo>& parameters,
           Precision precision = Precision::standard) {
    KernelInfo info{};
    info.function = function;
    info.parameter_count = uint32_t(parameters.size());
    info.parameters = parameters.data();
    info.dispatch = [](const Arguments&, Dispatch&) {};  // not called, but kernels without one have no body
    const RunBody body = level.find(info);
    if (!body) return native_test::fail(__FILE__, __LINE__, std::string("no body of ") + function);
    ThreadPool pool(2);
    Batch batch(pool, precision);
    body(batch, info, arguments);
    batch.run();
  }
};

ParameterInfo type_parameter(DType type) { return {"type", type, 0}; }
ParameterInfo value_parameter(uint32_t value) { return {"value", DType::raw, value}; }

// Rows of one head, encoded and decoded by the kernels.
struct CompressedRows {
  std::vector<uint32_t> packed;
  std::vector<uint16_t> scales;
  std::vector<float> decoded;

  CompressedRows(const Level& level, std::vector<float> x, uint32_t tokens, uint32_t dim, uint32_t bits)
      : packed(tokens * ((dim * bits + 31) / 32)), scales(tokens), decoded(x.size()) {
    Call encode;
    encode.settings[0] = bits;  // neither rotated nor with means
    encode.bind(0, x);
    encode.bind(3, packed);
    encode.bind(4, scales);
    const uint32_t sizes[] = {1, tokens, tokens, 1, dim, 0};  // batch, tokens, capacity, heads, dim, position
    for (uint32_t i = 0; i < 6; ++i) encode.set(8 + i, sizes[i]);
    encode.set(14, uint32_t(0));  // no exact rows
    encode.run(level, "turbo_encode", {});
    Call decode;
    decode.settings[0] = bits;
    decode.bind(0, packed);
    decode.bind(1, scales);
    decode.bind(4, decoded);
    const uint32_t places[] = {1, tokens, tokens, 0, 1, dim};
    for (uint32_t i = 0; i < 6; ++i) decode.set(5 + i, places[i]);
    decode.run(level, "turbo_decode", {});
  }
};

struct Weights {
  uint32_t bits, group, out, in;
  std::vector<uint32_t> packed;
  std::vector<float> scales, biases;

  Weights(uint32_t bits, uint32_t group, uint32_t out, uint32_t in)
      : bits(bits), group(group), out(out), in(in), packed(size_t(out) * in / 32 * bits) {
    for (uint32_t& word : packed) word = uint32_t(random_bits());
    scales = random_floats(size_t(out) * in / group);
    biases = random_floats(scales.size());
    for (float& scale : scales) scale /= float(1 << bits);
  }

  double at(uint32_t row, uint32_t column) const {
    uint64_t code = 0;
    for (uint32_t b = 0; b < bits; ++b) {
      const uint64_t bit = uint64_t(row) * in * bits + uint64_t(column) * bits + b;
      code |= uint64_t(packed[bit / 32] >> (bit % 32) & 1) << b;
    }
    const size_t g = (size_t(row) * in + column) / group;
    return double(code) * scales[g] + biases[g];
  }
};

// A format of small floats.
// The largest magnitude. GCC 12 fails to compile loops over std::fmax for aarch64.
double largest(const float* values, uint32_t count) {
  const auto less = [](float a, float b) { return std::fabs(a) < std::fabs(b); };
  return std::fabs(*std::max_element(values, values + count, less));
}

struct Format {
  uint32_t bits, group;

  std::vector<ParameterInfo> parameters() const { return {value_parameter(bits), value_parameter(group)}; }
};

// Exponents that a case adds to those of scales and of activations; results are compared without them.
struct Moved {
  int scales = 0, x = 0;

  void scale(std::vector<float>& values) const {
    for (float& value : values) value = std::ldexp(value, x);
  }
  double result(float y) const { return std::ldexp(double(y), -scales - x); }
};

// The same in a format of small floats. Scales are powers of two near 1 in either form.
struct FpWeights {
  Format format;
  uint32_t out, in;
  std::vector<uint8_t> codes, scales;

  FpWeights(Format format, uint32_t out, uint32_t in)
      : format(format), out(out), in(in), codes(size_t(out) * in * format.bits / 8) {
    for (uint8_t& code : codes) {
      code = uint8_t(random_bits());
      if (format.bits == 8 && (code & 0x7f) == 0x7f) code = 0;
    }
    scales.resize(size_t(out) * in / format.group);
    for (uint8_t& scale : scales)
      scale = uint8_t(format.group == 16 ? (random_bits() % 4 + 5) << 3 : random_bits() % 4 + 125);
  }

  double at(uint32_t row, uint32_t column) const {
    const size_t i = size_t(row) * in + column;
    const uint8_t scale = scales[i / format.group];
    const double factor = std::ldexp(1.0, format.group == 16 ? (scale >> 3) - 7 : scale - 127);
    if (format.bits == 8) {
      const uint8_t code = codes[i];
      const int exponent = (code >> 3) & 15, mantissa = code & 7;
      const double value = exponent ? std::ldexp(8 + mantissa, exponent - 10) : std::ldexp(mantissa, -9);
      return (code & 0x80 ? -value : value) * factor;
    }
    const double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const uint8_t code = codes[i / 2] >> (i % 2 * 4) & 15;
    return (code & 8 ? -values[code & 7] : values[code & 7]) * factor;
  }
};

void check_fp_product(const Level& level, const char* function, const FpWeights& w, uint32_t tokens,
                      Precision precision, Moved moved = {}) {
  FpWeights own = w;
  for (uint8_t& scale : own.scales) scale = uint8_t(scale + moved.scales);
  std::vector<float> x = random_floats(size_t(tokens) * w.in), y(size_t(tokens) * w.out, NAN), moved_x = x;
  moved.scale(moved_x);
  Call call;
  call.bind(0, moved_x);
  call.bind(1, own.codes);
  call.bind(2, own.scales);
  call.bind(4, y);
  for (uint32_t i = 0; i < 3; ++i) call.set(5 + i, std::vector<uint32_t>{tokens, w.in, w.out}[i]);
  call.run(level, function, w.format.parameters(), precision);
  const double step = precision == Precision::fast && w.format.bits == 4 ? 0.5 / 127 : 0;
  for (uint32_t t = 0; t < tokens; ++t)
    for (uint32_t r = 0; r < w.out; ++r) {
      double want = 0, bound = 0;
      for (uint32_t i = 0; i < w.in; ++i) {
        const uint32_t g = i / w.format.group * w.format.group;
        const double most = largest(&x[size_t(t) * w.in + g], w.format.group);
        const double weight = w.at(r, i), value = x[size_t(t) * w.in + i];
        want += weight * value;
        bound += std::fabs(weight) * (step * most + 4e-6 * std::fabs(value));
      }
      CHECK(std::fabs(moved.result(y[size_t(t) * w.out + r]) - want) <= bound);
    }
}

// The same in blocks of GGUF, with scales near 2^-7.
struct GgufWeights {
  GgufType type;
  uint32_t out, in;
  std::vector<uint8_t> blocks;
  std::vector<std::vector<float>> rows;  // their values

  GgufWeights(const GgufType& type, uint32_t out, uint32_t in) : type(type), out(out), in(in) {
    const size_t row_bytes = in / type.block * type.block_bytes;
    blocks.resize(out * row_bytes);
    for (uint8_t& byte : blocks) byte = uint8_t(random_bits());
    for (size_t block = 0; block < blocks.size(); block += type.block_bytes) {
      if (type.halves.empty()) blocks[block] = uint8_t(118 + random_bits() % 4);
      for (uint32_t at : type.halves) blocks[block + at + 1] = 0x20;
    }
    for (uint32_t r = 0; r < out; ++r) rows.push_back(gguf_values(type, &blocks[r * row_bytes], in));
  }
};

// Only types without halves may have other scales.
void check_gguf_product(const Level& level, const char* function, const GgufWeights& w, uint32_t tokens,
                        Precision precision, Moved moved = {}) {
  GgufWeights own = w;
  if (moved.scales)
    for (size_t at = 0; at < own.blocks.size(); at += w.type.block_bytes)
      own.blocks[at] = uint8_t(own.blocks[at] + moved.scales);
  std::vector<float> x = random_floats(size_t(tokens) * w.in), y(size_t(tokens) * w.out, NAN), moved_x = x;
  moved.scale(moved_x);
  Call call;
  call.bind(0, moved_x);
  call.bind(1, own.blocks);
  call.bind(2, y);
  for (uint32_t i = 0; i < 3; ++i) call.set(3 + i, std::vector<uint32_t>{tokens, w.in, w.out}[i]);
  call.run(level, function,
           {value_parameter(w.type.type), value_parameter(w.type.block), value_parameter(w.type.block_bytes)},
           precision);
  const double step = precision == Precision::fast ? 0.5 / 127 : 0;
  for (uint32_t t = 0; t < tokens; ++t)
    for (uint32_t r = 0; r < w.out; ++r) {
      const double most_weight = largest(w.rows[r].data(), w.in);
      double want = 0, bound = 0;
      for (uint32_t i = 0; i < w.in; ++i) {
        const double most = largest(&x[size_t(t) * w.in + i / 32 * 32], 32);
        const double weight = w.rows[r][i], value = x[size_t(t) * w.in + i];
        want += weight * value;
        bound += std::fabs(weight) * step * most + 4e-6 * most_weight * std::fabs(value);
      }
      CHECK(std::fabs(moved.result(y[size_t(t) * w.out + r]) - want) <= bound);
    }
}

void check_product(const Level& level, const char* function, const Weights& w, uint32_t tokens,
                   Precision precision) {
  Weights own = w;
  std::vector<float> x = random_floats(size_t(tokens) * w.in), y(size_t(tokens) * w.out, NAN);
  Call call;
  call.bind(0, x);
  call.bind(1, own.packed);
  call.bind(2, own.scales);
  call.bind(3, own.biases);
  call.bind(4, y);
  for (uint32_t i = 0; i < 4; ++i) call.set(5 + i, std::vector<uint32_t>{tokens, w.in, w.out, w.group}[i]);
  call.run(level, function, {value_parameter(w.bits), type_parameter(DType::f32)}, precision);
  // Half a step of 1/127 of the largest value of a group, or the rounding of f32.
  const double step = precision == Precision::fast ? 0.5 / 127 : 0;
  for (uint32_t t = 0; t < tokens; ++t)
    for (uint32_t r = 0; r < w.out; ++r) {
      double want = 0, bound = 0;
      for (uint32_t g = 0; g < w.in; g += w.group) {
        const double most = largest(&x[size_t(t) * w.in + g], w.group);
        for (uint32_t i = g; i < g + w.group; ++i) {
          const double weight = w.at(r, i), value = x[size_t(t) * w.in + i];
          want += weight * value;
          bound += std::fabs(weight) * (step * most + 4e-6 * std::fabs(value)) + 4e-6 * std::fabs(value);
        }
      }
      CHECK(std::fabs(y[size_t(t) * w.out + r] - want) <= bound);
    }
}

}  // namespace

NATIVE_TEST(kernel_without_a_dispatch_line_has_no_body) {
  for (const Level* level : levels()) {
    KernelInfo info{};
    info.function = "route";
    CHECK(!level->find(info));
    info.dispatch = [](const Arguments&, Dispatch&) {};
    CHECK(level->find(info));
  }
}

NATIVE_TEST(simd_products) {
  for (const Level* level : levels())
    for (uint32_t bits : {2u, 3u, 4u, 5u, 6u, 8u})
      for (uint32_t group : {32u, 64u, 128u})
        for (Precision precision : {Precision::standard, Precision::fast}) {
          const Weights w(bits, group, 21, 3 * group);
          check_product(*level, "affine_matvec", w, 1, precision);
          check_product(*level, "affine_matvec", w, 7, precision);
          check_product(*level, "affine_matmul", w, 13, precision);
        }
}

NATIVE_TEST(simd_embed) {
  for (const Level* level : levels())
    for (uint32_t bits : {2u, 3u, 4u, 5u, 6u, 8u}) {
      Weights w(bits, 32, 5, 96);
      std::vector<int32_t> ids = {4, -1, 0};
      std::vector<float> y(3 * 96);
      Call call;
      call.bind(0, ids);
      call.bind(1, w.packed);
      call.bind(2, w.scales);
      call.bind(3, w.biases);
      call.bind(4, y);
      for (uint32_t i = 0; i < 4; ++i) call.set(5 + i, std::vector<uint32_t>{3, 5, 96, 32}[i]);
      call.run(*level, "affine_embed", {value_parameter(bits), type_parameter(DType::f32)});
      for (uint32_t i = 0; i < 96; ++i) {
        CHECK(std::fabs(y[i] - w.at(4, i)) <= 1e-5 * (1 + std::fabs(w.at(4, i))));
        CHECK(std::isnan(y[96 + i]));
        CHECK(std::fabs(y[192 + i] - w.at(0, i)) <= 1e-5 * (1 + std::fabs(w.at(0, i))));
      }
    }
}

constexpr Format kFpFormats[] = {{4, 32}, {8, 32}, {4, 16}};

NATIVE_TEST(simd_fp_products) {
  for (const Level* level : levels())
    for (Format format : kFpFormats)
      for (Precision precision : {Precision::standard, Precision::fast}) {
        const FpWeights w(format, 21, 160);
        check_fp_product(*level, "fp_matvec", w, 1, precision);
        check_fp_product(*level, "fp_matvec", w, 7, precision);
        check_fp_product(*level, "fp_matmul", w, 13, precision);
      }
}

NATIVE_TEST(simd_fp_embed) {
  for (const Level* level : levels())
    for (Format format : kFpFormats) {
      FpWeights w(format, 5, 96);
      std::vector<int32_t> ids = {4, -1, 0};
      std::vector<float> y(3 * 96);
      Call call;
      call.bind(0, ids);
      call.bind(1, w.codes);
      call.bind(2, w.scales);
      call.bind(4, y);
      for (uint32_t i = 0; i < 3; ++i) call.set(5 + i, std::vector<uint32_t>{3, 5, 96}[i]);
      call.run(*level, "fp_embed", format.parameters());
      for (uint32_t i = 0; i < 96; ++i) {
        CHECK(double(y[i]) == w.at(4, i));
        CHECK(std::isnan(y[96 + i]));
        CHECK(double(y[192 + i]) == w.at(0, i));
      }
    }
}

NATIVE_TEST(simd_gguf_products) {
  for (const Level* level : levels())
    for (const GgufType& type : gguf_types())
      for (Precision precision : {Precision::standard, Precision::fast}) {
        const GgufWeights w(type, 21, type.block == 32 ? 160 : 512);
        check_gguf_product(*level, "gguf_matvec", w, 1, precision);
        check_gguf_product(*level, "gguf_matvec", w, 7, precision);
        check_gguf_product(*level, "gguf_matmul", w, 13, precision);
      }
}

// The largest and the smallest scales of E8M0. A matmul makes floats of weights, which may be too large,
// unless it is fast.
NATIVE_TEST(simd_extreme_scales) {
  for (const Level* level : levels())
    for (Precision precision : {Precision::standard, Precision::fast})
      for (int last : {0, 254}) {
        const int x = last == 0 ? 20 : -90;
        const FpWeights w({4, 32}, 21, 160);  // scales from 125 to 128
        const Moved moved = {last == 0 ? -125 : last - 128, x};
        check_fp_product(*level, "fp_matvec", w, 1, precision, moved);
        check_fp_product(*level, "fp_matvec", w, 7, precision, moved);
        if (precision == Precision::fast) check_fp_product(*level, "fp_matmul", w, 13, precision, moved);
        for (const GgufType& type : gguf_types()) {
          if (!type.halves.empty()) continue;
          const GgufWeights blocks(type, 21, 160);  // from 118 to 121
          const Moved other = {last == 0 ? -118 : last + 1 - 121, x};
          check_gguf_product(*level, "gguf_matvec", blocks, 1, precision, other);
          check_gguf_product(*level, "gguf_matvec", blocks, 7, precision, other);
          if (precision == Precision::fast)
            check_gguf_product(*level, "gguf_matmul", blocks, 13, precision, other);
        }
      }
}

NATIVE_TEST(simd_norm) {
  for (const Level* level : levels())
    for (uint32_t dim : {1u, 7u, 64u, 259u}) {
      std::vector<float> x = random_floats(dim), weight = random_floats(dim), y(dim);
      Call call;
      call.bind(0, x);
      call.bind(1, weight);
      call.bind(2, y);
      call.set(5, uint32_t(1));
      call.set(6, dim);
      call.set(7, 1e-6f);
      call.run(*level, "rms_norm", {type_parameter(DType::f32)});
      double squares = 0;
      for (float value : x) squares += double(value) * value;
      const double inverse = 1 / std::sqrt(squares / dim + 1e-6);
      for (uint32_t i = 0; i < dim; ++i)
        CHECK(std::fabs(y[i] - x[i] * inverse * weight[i]) <= 4e-6 * std::fabs(x[i] * inverse * weight[i]));
    }
}

NATIVE_TEST(simd_clamped_swiglu) {
  for (const Level* level : levels()) {
    std::vector<float> gate = random_floats(131), up = random_floats(131), y(131);
    for (float& value : gate) value *= 8;
    for (float& value : up) value *= 8;
    gate[3] = up[77] = NAN;
    Call call;
    call.bind(0, gate);
    call.bind(1, up);
    call.bind(2, y);
    call.set(3, uint32_t(131));
    call.set(4, 1.702f);
    call.set(5, 7.0f);
    call.run(*level, "swiglu_clamped", {});
    for (uint32_t i = 0; i < 131; ++i) {
      const double g = std::fmin(gate[i], 7.0), u = std::fmax(-7.0, std::fmin(up[i], 7.0));
      const double want = g / (1 + std::exp(-double(1.702f) * g)) * (u + 1);
      CHECK(i == 3 || i == 77 ? std::isnan(y[i]) : std::fabs(y[i] - want) <= 4e-5 * std::fabs(want) + 1e-30);
    }
  }
}

NATIVE_TEST(simd_expert_bias) {
  constexpr uint32_t kRows = 6, kExperts = 4, kMatrices = 3, kDim = 37, kStride = 40;
  for (const Level* level : levels()) {
    std::vector<float> x = random_floats(kRows * kDim), bias = random_floats(kMatrices * kStride);
    std::vector<float> y(x.size(), 7);
    std::vector<int32_t> ids = {2, 0, -1, 1, 3, 2}, order = {3, 1, 0, 6, 2, 4}, slots = {2, 3, 0, -1};
    Call call;
    call.settings[0] = call.settings[1] = 1;  // by slot and with an order
    call.bind(0, x);
    call.bind(1, bias);
    call.bind(2, ids);
    call.bind(3, order);
    call.bind(4, slots);
    call.bind(5, y);
    const uint32_t sizes[] = {kRows, kExperts, kMatrices, kDim};
    for (uint32_t i = 0; i < 4; ++i) call.set(6 + i, sizes[i]);
    call.set(10, uint64_t(kStride));
    call.run(*level, "add_expert_bias", {type_parameter(DType::f32)});
    const int32_t matrix[] = {3, 2, 0, 3, 3, -1};  // the one past the last: NaN; negative: not written
    for (uint32_t r = 0; r < kRows; ++r)
      for (uint32_t i = 0; i < kDim; ++i) {
        const float got = y[r * kDim + i];
        if (matrix[r] < 0)
          CHECK(got == 7);
        else if (matrix[r] == int32_t(kMatrices))
          CHECK(std::isnan(got));
        else
          CHECK(got == x[r * kDim + i] + bias[uint32_t(matrix[r]) * kStride + i]);
      }
  }
}

NATIVE_TEST(simd_attention) {
  constexpr uint32_t kTokens = 29, kContext = 70, kHeads = 6, kKvHeads = 2, kDim = 40;
  for (const Level* level : levels()) {
    std::vector<float> q = random_floats(kTokens * kHeads * kDim),
                       k = random_floats(kContext * kKvHeads * kDim);
    std::vector<float> v = random_floats(k.size()), y(q.size());
    Call call;
    call.settings[0] = 1;  // causal, without sinks
    call.bind(0, q);
    call.bind(1, k);
    call.bind(2, v);
    call.bind(4, y);
    const std::vector<uint32_t> sizes = {kTokens, kContext, kContext, kHeads, kKvHeads, kDim};
    for (uint32_t i = 0; i < sizes.size(); ++i) call.set(5 + i, sizes[i]);
    call.set(11, 0.2f);
    call.set(12, uint32_t(0));
    call.set(13, 0.0f);
    call.run(*level, "attention", {type_parameter(DType::f32), value_parameter(64), value_parameter(32)});
    for (uint32_t t = 0; t < kTokens; ++t)
      for (uint32_t h = 0; h < kHeads; ++h) {
        const uint32_t seen = kContext - kTokens + t + 1, kv = h / (kHeads / kKvHeads);
        std::vector<double> weights(seen);
        double total = 0;
        for (uint32_t j = 0; j < seen; ++j) {
          double score = 0;
          for (uint32_t i = 0; i < kDim; ++i)
            score += double(q[(t * kHeads + h) * kDim + i]) * k[(j * kKvHeads + kv) * kDim + i];
          total += weights[j] = std::exp(0.2 * score);
        }
        for (uint32_t i = 0; i < kDim; ++i) {
          double want = 0;
          for (uint32_t j = 0; j < seen; ++j) want += weights[j] / total * v[(j * kKvHeads + kv) * kDim + i];
          CHECK(std::fabs(y[(t * kHeads + h) * kDim + i] - want) <= 2e-5);
        }
      }
  }
}

NATIVE_TEST(simd_turbo_codec) {
  constexpr uint32_t kTokens = 5, kDim = 80;
  const double errors[] = {0, 0, 0.15, 0.045, 0.013, 0, 0.0009, 0, 0.00006};  // of normal vectors, by bits
  for (const Level* level : levels())
    for (uint32_t bits : {2, 3, 4, 6, 8}) {
      const std::vector<float> x = random_floats(kTokens * kDim);
      const CompressedRows rows(*level, x, kTokens, kDim, bits);
      double squares = 0, error = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        squares += double(x[i]) * x[i];
        error += (double(x[i]) - rows.decoded[i]) * (double(x[i]) - rows.decoded[i]);
      }
      CHECK(error < errors[bits] * squares);
      CHECK(error > 0.3 * errors[bits] * squares);
    }
}

NATIVE_TEST(simd_turbo_attention) {
  constexpr uint32_t kContext = 75, kHeads = 5, kDim = 96;
  for (const Level* level : levels())
    for (uint32_t bits : {2, 3, 4, 6, 8}) {
      CompressedRows k(*level, random_floats(kContext * kDim), kContext, kDim, bits);
      CompressedRows v(*level, random_floats(kContext * kDim), kContext, kDim, bits);
      std::vector<float> q = random_floats(kHeads * kDim), o(q.size()), m(kHeads), l(kHeads);
      Call call;
      call.settings[0] = call.settings[1] = bits;
      call.bind(0, q);
      call.bind(1, k.packed);
      call.bind(2, k.scales);
      call.bind(3, v.packed);
      call.bind(4, v.scales);
      call.bind(13, o);
      call.bind(14, m);
      call.bind(15, l);
      // batch, tokens, context, capacity, ring start, exact rows, heads, key heads, dim, blocks
      const uint32_t sizes[] = {1, 1, kContext, kContext, 0, 0, kHeads, 1, kDim, 1};
      for (uint32_t i = 0; i < 10; ++i) call.set(16 + i, sizes[i]);
      call.set(26, 0.1f);
      call.set(27, uint32_t(0));
      call.set(28, 0.0f);
      call.run(*level, "turbo_partials",
               {type_parameter(DType::f32), value_parameter(128), value_parameter(8)});
      for (uint32_t h = 0; h < kHeads; ++h)
        for (uint32_t i = 0; i < kDim; ++i) {
          double total = 0, sum = 0;
          for (uint32_t j = 0; j < kContext; ++j) {
            double score = 0;
            for (uint32_t c = 0; c < kDim; ++c) score += double(q[h * kDim + c]) * k.decoded[j * kDim + c];
            total += std::exp(0.1 * score);
            sum += std::exp(0.1 * score) * v.decoded[j * kDim + i];
          }
          CHECK(std::fabs(o[h * kDim + i] / l[h] - sum / total) <= 1e-5);
        }
    }
}

NATIVE_TEST(simd_delta_net) {
  constexpr uint32_t kTokens = 37, kHeads = 2, kKeyDim = 64, kValueDim = 40;
  for (const Level* level : levels())
    for (const bool chunks : {false, true}) {
      auto q = random_floats(kTokens * kKeyDim), k = random_floats(kTokens * kKeyDim);
      auto v = random_floats(kTokens * kHeads * kValueDim),
           state = random_floats(kHeads * kValueDim * kKeyDim);
      std::vector<float> g(kTokens * kHeads, 0.9f), beta(kTokens * kHeads, 0.5f), y(v.size(), NAN);
      for (float& value : k) value /= 8;  // keys of length one
      const std::vector<double> start(state.begin(), state.end());
      Call call;
      std::vector<float>* arrays[] = {&q, &k, &v, &g, &beta, &state, &y};
      for (uint32_t i = 0; i < 7; ++i) call.bind(i, *arrays[i]);
      const uint32_t sizes[] = {kTokens, 1, kHeads, kValueDim, kKeyDim, kHeads * kValueDim};
      for (uint32_t i = 0; i < 6; ++i) call.set(7 + i, sizes[i]);
      call.run(*level, chunks ? "delta_net_chunkwise" : "delta_net", {value_parameter(kKeyDim / 32)});
      for (uint32_t row = 0; row < kHeads * kValueDim; ++row) {
        std::vector<double> s(start.begin() + row * kKeyDim, start.begin() + (row + 1) * kKeyDim);
        for (uint32_t t = 0; t < kTokens; ++t) {
          double predicted = 0, want = 0;
          for (uint32_t i = 0; i < kKeyDim; ++i) predicted += (s[i] *= 0.9f) * k[t * kKeyDim + i];
          const double delta = 0.5 * (v[t * kHeads * kValueDim + row] - predicted);
          for (uint32_t i = 0; i < kKeyDim; ++i)
            want += (s[i] += delta * k[t * kKeyDim + i]) * q[t * kKeyDim + i];
          CHECK(std::fabs(y[t * kHeads * kValueDim + row] - want) <= 2e-4);
        }
        for (uint32_t i = 0; i < kKeyDim; ++i) CHECK(std::fabs(state[row * kKeyDim + i] - s[i]) <= 2e-5);
      }
    }
}

NATIVE_TEST(simd_mla_turbo) {
  constexpr uint32_t kContext = 45, kOwn = 2, kHeads = 5, kRank = 80, kRope = 24;
  constexpr uint32_t kKeys = kContext + kOwn;
  for (const Level* level : levels())
    for (uint32_t bits : {3, 4, 8}) {
      CompressedRows rows(*level, random_floats(kContext * kRank), kContext, kRank, bits);
      std::vector<float> q = random_floats(kOwn * kHeads * kRank),
                         q_rope = random_floats(kOwn * kHeads * kRope);
      std::vector<float> own = random_floats(kOwn * kRank), own_ropes = random_floats(kOwn * kRope),
                         y(q.size());
      std::vector<uint16_t> halves(kContext * kRope);  // small numbers of a sixteenth: 0x3800 is 0.5
      for (uint16_t& half : halves) half = uint16_t(0x3800 + (random_bits() % 8) * 128);
      std::vector<double> latents(rows.decoded.begin(), rows.decoded.end()), ropes;
      for (uint16_t half : halves) ropes.push_back(0.5 + (half - 0x3800) / 2048.0);
      latents.insert(latents.end(), own.begin(), own.end());
      ropes.insert(ropes.end(), own_ropes.begin(), own_ropes.end());
      Call call;
      call.settings[0] = bits;
      call.settings[1] = 1;  // has own rows
      call.bind(0, q);
      call.bind(1, q_rope);
      call.bind(2, rows.packed);
      call.bind(3, rows.scales);
      call.bind(4, halves);
      call.bind(5, own);
      call.bind(6, own_ropes);
      call.bind(9, y);
      const uint32_t sizes[] = {kOwn, kContext, kContext, 0, kHeads, kRank, kRope};
      for (uint32_t i = 0; i < 7; ++i) call.set(10 + i, sizes[i]);
      call.set(17, 0.1f);
      call.run(*level, "mla_turbo_attention", {});
      for (uint32_t pair = 0; pair < kOwn * kHeads; ++pair) {
        const uint32_t seen = kKeys - kOwn + pair / kHeads + 1;
        std::vector<double> weights(seen);
        double total = 0;
        for (uint32_t j = 0; j < seen; ++j) {
          double score = 0;
          for (uint32_t c = 0; c < kRank; ++c) score += q[pair * kRank + c] * latents[j * kRank + c];
          for (uint32_t c = 0; c < kRope; ++c) score += q_rope[pair * kRope + c] * ropes[j * kRope + c];
          total += weights[j] = std::exp(0.1 * score);
        }
        for (uint32_t i = 0; i < kRank; ++i) {
          double want = 0;
          for (uint32_t j = 0; j < seen; ++j) want += weights[j] / total * latents[j * kRank + i];
          CHECK(std::fabs(y[pair * kRank + i] - want) <= 1e-5);
        }
      }
    }
}
