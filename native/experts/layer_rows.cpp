#include "experts/layer_rows.h"

#include <algorithm>

namespace pyturbo::experts {
namespace {

int32_t* row(const ExpertTables& tables, uint32_t layer, uint32_t number) {
  return tables.rows + (uint64_t(layer) * kExpertRows + number) * tables.padded;
}

}  // namespace

LayerRows::LayerRows(const ExpertTables& tables, uint32_t layer, uint32_t experts)
    : table_(row(tables, layer, 0)),
      counts_(reinterpret_cast<uint32_t*>(row(tables, layer, 1))),
      slots_(row(tables, layer, 2)),
      missing_(reinterpret_cast<uint32_t*>(row(tables, layer, 3))),
      guesses_(reinterpret_cast<uint32_t*>(row(tables, layer, 4))),
      experts_(experts),
      seen_(experts),
      uses_(experts),
      guessed_(experts) {
  std::fill_n(table_, tables.padded, -1);
  std::fill_n(row(tables, layer, 1), tables.padded, 0);
  std::fill_n(slots_, tables.padded, -1);
  std::fill_n(row(tables, layer, 3), tables.padded, 0);
  std::fill_n(row(tables, layer, 4), tables.padded, 0);
}

const std::vector<uint32_t>& LayerRows::take_uses() {
  for (uint32_t e = 0; e < experts_; ++e) {
    const uint32_t count = counts_[e];
    uses_[e] = count - seen_[e];
    seen_[e] = count;
  }
  return uses_;
}

std::vector<uint32_t> LayerRows::take_guesses() {
  std::vector<uint32_t> experts;
  for (uint32_t e = 0; e < experts_; ++e)
    if (guesses_[e] != guessed_[e]) {
      experts.push_back(e);
      guessed_[e] = guesses_[e];
    }
  return experts;
}

void LayerRows::clear_pass() { std::fill_n(slots_, experts_, -1); }

}  // namespace pyturbo::experts
