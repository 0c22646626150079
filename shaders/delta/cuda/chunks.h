// delta_chunks for NVIDIA GPUs: four tokens at a time, in f32 without the matrix units.
//
// The formulas are those of the chunk of 32 tokens. The state stays in registers: 16 lanes share four rows. So each token is
// read from shared memory once for four rows, and the sums S k and S q of four tokens and four rows are found by one
// exchange between lanes. Tokens are copied to shared memory while those before them are used.
#include "part.h"

template <uint tiles>
struct ChunkForm {
  static constexpr uint kDim = tiles * 32;
  static constexpr uint kStateRows = 32;               // of a threadgroup
  static constexpr uint kFours = kDim / (kLanes * 4);  // of a lane in a row
  static constexpr uint kGroupThreads = kStateRows / kOwnRows * kLanes;

  static constexpr uint stage_floats(uint tokens) { return tokens * (2 * kDim + kStateRows + 2); }
  static constexpr uint bytes(uint tokens) {
    return 2 * stage_floats(tokens) * 4 + tokens / kPart * sizeof(PartFactors);
  }
  static constexpr uint kStaged = bytes(32) <= kMostSharedBytes ? 32 : 16;  // tokens

  // As the front end reads them.
  static constexpr uint kSpan = 1, kThreads = kGroupThreads, kBytes = bytes(kStaged);
};
#define PT_FORM(tiles) ChunkForm<tiles>
#define PT_PARTS 2

// Tokens in shared memory.
template <typename Form>
struct TokenStage {
  float* memory;

  float* keys() const { return memory; }                                         // [tokens, kDim]
  float* queries() const { return memory + Form::kStaged * Form::kDim; }         // [tokens, kDim]
  float* values() const { return memory + Form::kStaged * Form::kDim * 2; }      // [tokens, kStateRows]
  float* decays() const { return values() + Form::kStaged * Form::kStateRows; }  // [tokens]
  float* rates() const { return decays() + Form::kStaged; }                      // [tokens]

  // Asks for tokens from `first` on and the values of rows from `row` on; what does not exist becomes zero.
  void ask(const ChunkHead& head, uint first, uint row, uint tid) const {
    const uint last = head.tokens - 1;
    const bool wide = (reinterpret_cast<ulong>(head.q) | reinterpret_cast<ulong>(head.k) |
                       reinterpret_cast<ulong>(head.v) | (head.qk_stride | head.v_stride) * 4) %
                          16 ==
                      0;
    const auto copy = [&](const float* from, float* to, uint stride, uint columns, uint existing) {
      const uint width = wide ? 4 : 1;
      for (uint i = tid * width; i < Form::kStaged * columns; i += Form::kThreads * width) {
        const uint token = first + i / columns, column = i % columns;
        const bool exists = token <= last && column < existing;
        const float* place = from + ulong(min(token, last)) * stride + (exists ? column : 0);
        wide ? copy_16_bytes(to + i, place, exists ? 16 : 0) : copy_4_bytes(to + i, place, exists ? 4 : 0);
      }
    };
    copy(head.k, keys(), head.qk_stride, Form::kDim, Form::kDim);
    copy(head.q, queries(), head.qk_stride, Form::kDim, Form::kDim);
    copy(head.v + row, values(), head.v_stride, Form::kStateRows, head.v_dim - row);
    if (tid < Form::kStaged) {
      const uint token = first + tid;
      const ulong gate = ulong(min(token, last)) * head.gate_stride;
      copy_4_bytes(decays() + tid, head.g + gate, token <= last ? 4 : 0);
      copy_4_bytes(rates() + tid, head.beta + gate, token <= last ? 4 : 0);
    }
    copies_asked();
  }
};

template <uint tiles>
inline void delta_chunks(ChunkHead head, uint group, ChunkMemory, uint tid, uint lane, uint) {
  using Form = ChunkForm<tiles>;
  const uint first_row = group * Form::kStateRows;
  if (first_row >= head.v_dim) return;
  float* memory = reinterpret_cast<float*>(dynamic_memory());
  const auto stage_at = [&](uint at) {
    return TokenStage<Form>{memory + at * Form::stage_floats(Form::kStaged)};
  };
  PartFactors* factors = reinterpret_cast<PartFactors*>(memory + 2 * Form::stage_floats(Form::kStaged));
  stage_at(0).ask(head, 0, first_row, tid);

  const uint own = tid / kLanes * kOwnRows, column = tid % kLanes * 4;
  const bool active = first_row + own < head.v_dim;
  OwnRows<Form::kFours> rows;
  float* state = head.state + ulong(first_row + own) * Form::kDim + column;
  rows.load(state, active);
  // Of the sums of a part, the lane gets those of this row and token.
  const uint row = own + lane / kPart % kOwnRows, token = lane % kPart;
  float* y = head.y + first_row + row;

  uint at = 0;
  for (uint first = 0; first < head.tokens; first += Form::kStaged, at ^= 1) {
    const TokenStage<Form> stage = stage_at(at);
    wait_for_copies();
    ::__syncthreads();
    if (first + Form::kStaged < head.tokens)
      stage_at(at ^ 1).ask(head, first + Form::kStaged, first_row, tid);
    const uint count = min(Form::kStaged, head.tokens - first);
    if (tid < Form::kStaged / kPart * kLanes) {
      const uint part = tid / kLanes, place = part * kPart * Form::kDim + column;
      find_factors<Form::kFours>(
          stage.keys() + place, stage.queries() + place, stage.decays() + part * kPart,
          stage.rates() + part * kPart, count - min(count, part * kPart), factors[part], lane);
    }
    ::__syncthreads();
    for (uint part = 0; part * kPart < count; ++part) {
      const uint begin = part * kPart, place = begin * Form::kDim + column;
      const float value = stage.values()[(begin + token) * Form::kStateRows + row];
      const float result = rows.add_part(
          stage.keys() + place, stage.queries() + place, value, factors[part], count - begin, lane);
      if (active && begin + token < count) y[ulong(first + begin + token) * head.y_stride] = result;
    }
  }
  rows.store(state, active);
}
