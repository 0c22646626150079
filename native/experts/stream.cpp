// Stores that read records from files into the slots of a slab.
#include <memory>
#include <string>
#include <vector>

#include "experts/file_source.h"
#include "experts/slot_cache.h"
#include "experts/store.h"
#include "pyturbo/error.h"

namespace pyturbo {

std::shared_ptr<ExpertStore> open_expert_store(const std::vector<ExpertFile>& files, const ExpertSlab& slab,
                                               const ExpertTables& tables,
                                               const ExpertStoreOptions& options) {
  std::vector<uint32_t> experts;
  for (const ExpertFile& file : files) experts.push_back(file.experts);
  experts::check_options(experts, tables, options);
  experts::check_slab(slab);
  if (options.staging >= slab.slots)
    throw Error(ErrorKind::argument, "expert store: expected fewer staging slots than slots (" +
                                         std::to_string(slab.slots) + "), got " +
                                         std::to_string(options.staging));
  return experts::share(std::make_unique<experts::Store>(
      experts, tables, options, std::make_unique<experts::FileSource>(files, options.stride, options.direct),
      [&](std::vector<experts::LayerRows>& rows, const std::vector<experts::Scores>& scores) {
        return std::make_unique<experts::SlotCache>(slab, options.stride, options.staging, rows, scores);
      }));
}

}  // namespace pyturbo
