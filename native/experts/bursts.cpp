// Reads that are only measured.
#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "experts/file_source.h"
#include "experts/reader.h"
#include "experts/store.h"
#include "pyturbo/error.h"

namespace pyturbo {
namespace experts {
namespace {

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Waits until `count` records have ended.
void settle(Reader& reader, size_t count) {
  while (count > 0) {
    reader.wait();
    for (const Ended& ended : reader.take()) {
      if (ended.error) std::rethrow_exception(ended.error);
      --count;
    }
  }
}

void check_records(const std::vector<ExpertFile>& files, const std::vector<ExpertPlace>& records) {
  for (const ExpertPlace& place : records) {
    if (place.layer >= files.size())
      throw Error(ErrorKind::argument, "expert store: expected a layer below " +
                                           std::to_string(files.size()) + ", got " +
                                           std::to_string(place.layer));
    if (place.expert >= files[place.layer].experts)
      throw Error(ErrorKind::argument, "expert store: expected an expert below " +
                                           std::to_string(files[place.layer].experts) + ", got " +
                                           std::to_string(place.expert));
  }
}

}  // namespace
}  // namespace experts

ExpertBursts time_expert_reads(const std::vector<ExpertFile>& files, const ExpertSlab& slab,
                               const std::vector<ExpertPlace>& records, const ExpertStoreOptions& options,
                               double seconds) {
  experts::check_slab(slab);
  experts::check_reads(options);
  experts::check_records(files, records);
  experts::Reader reader(std::make_unique<experts::FileSource>(files, options.stride, options.direct),
                         options.threads, options.stride, options.split);
  const experts::Clock::time_point begin = experts::Clock::now();
  ExpertBursts out{};
  for (size_t first = 0; first < records.size(); first += slab.slots) {
    const experts::Clock::time_point burst = experts::Clock::now();
    const size_t end = std::min<size_t>(records.size(), first + slab.slots);
    for (size_t i = first; i < end; ++i) {
      const int32_t slot = int32_t(i - first);
      reader.start({records[i].layer, records[i].expert, slot, slab.data + uint64_t(slot) * options.stride});
    }
    experts::settle(reader, end - first);
    out.seconds.push_back(experts::seconds_since(burst));
    if (experts::seconds_since(begin) > seconds) break;
  }
  out.direct = reader.source().direct();
  return out;
}

}  // namespace pyturbo
