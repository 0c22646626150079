// Stores that read records from files into the slots of a slab.
#include <memory>
#include <string>
#include <vector>

#include "experts/reader.h"
#include "experts/record_file.h"
#include "experts/slot_cache.h"
#include "experts/store.h"
#include "pyturbo/error.h"

namespace pyturbo {
namespace experts {
namespace {

class FileSource final : public Source {
 public:
  FileSource(const std::vector<ExpertFile>& files, uint64_t stride, bool direct) {
    for (const ExpertFile& file : files) files_.push_back(std::make_unique<RecordFile>(file, stride, direct));
  }

  void bring(const Record& record, uint64_t begin, uint64_t bytes, const std::atomic<bool>& stop,
             uint64_t& calls) override {
    files_[record.layer]->read(record.expert, begin, bytes, record.memory + begin, stop, calls);
  }
  bool direct() const override {
    for (const std::unique_ptr<RecordFile>& file : files_)
      if (!file->direct()) return false;
    return true;
  }
  void require_unchanged() const override {
    for (const std::unique_ptr<RecordFile>& file : files_) file->require_unchanged();
  }
  void close() override { files_.clear(); }

 private:
  std::vector<std::unique_ptr<RecordFile>> files_;  // by layer
};

}  // namespace
}  // namespace experts

std::shared_ptr<ExpertStore> open_expert_store(const std::vector<ExpertFile>& files, const ExpertSlab& slab,
                                               const ExpertTables& tables,
                                               const ExpertStoreOptions& options) {
  std::vector<uint32_t> experts;
  for (const ExpertFile& file : files) experts.push_back(file.experts);
  experts::check_options(experts, tables, options);
  if (slab.slots == 0) throw Error(ErrorKind::argument, "expert store: expected at least one slot, got 0");
  if (options.staging >= slab.slots)
    throw Error(ErrorKind::argument, "expert store: expected fewer staging slots than slots (" +
                                         std::to_string(slab.slots) + "), got " +
                                         std::to_string(options.staging));
  if (reinterpret_cast<uintptr_t>(slab.data) % kDirectAlignment)
    throw Error(ErrorKind::argument, "expert store: expected a slab that starts on a page of " +
                                         std::to_string(kDirectAlignment) + " bytes, got one that does not");
  return experts::share(std::make_unique<experts::Store>(
      experts, tables, options, std::make_unique<experts::FileSource>(files, options.stride, options.direct),
      [&](std::vector<experts::LayerRows>& rows, const std::vector<experts::Scores>& scores) {
        return std::make_unique<experts::SlotCache>(slab, options.stride, options.staging, rows, scores);
      }));
}

}  // namespace pyturbo
