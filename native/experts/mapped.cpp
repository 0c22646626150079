// Stores over mapped files: the pages of a record are made present before launches first read them.
#include <sys/mman.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "core/pages.h"
#include "experts/places.h"
#include "experts/reader.h"
#include "experts/store.h"
#include "pyturbo/error.h"
#include "pyturbo/mapped_file.h"

namespace pyturbo {
namespace experts {
namespace {

// Reads one byte of every page, from the beginning of a page on. A page that the file no longer has reads as
// zeros (core/bus_error.h).
void touch(const uint8_t* memory, uint64_t bytes) {
  const uint64_t page = page_bytes();
  for (uint64_t i = 0; i < bytes; i += page)
    static_cast<void>(*static_cast<const volatile uint8_t*>(memory + i));
}

class PageSource final : public Source {
 public:
  explicit PageSource(const std::vector<MappedExperts>& layers) {
    for (const MappedExperts& layer : layers) files_.push_back(mapped_file_at(layer.records));
  }

  // Throws Error{file} when the file was changed, or lost a part of the record.
  void bring(const Record& record, uint64_t begin, uint64_t bytes, const std::atomic<bool>&,
             uint64_t& calls) override {
    ++calls;
    populate(record.memory + begin, bytes);
    require_unchanged(files_[record.layer]);
  }
  void require_unchanged() const override {
    for (const std::weak_ptr<MappedFile>& file : files_) require_unchanged(file);
  }

 private:
  // Asks for all pages in large reads first; page faults alone would read less at a time.
  static void populate(uint8_t* memory, uint64_t bytes) {
    const uint64_t before = reinterpret_cast<uintptr_t>(memory) % page_bytes();  // records may share pages
    memory -= before;
    bytes += before;
    ::madvise(memory, bytes, MADV_WILLNEED);
#if defined(MADV_POPULATE_READ)
    if (::madvise(memory, bytes, MADV_POPULATE_READ) == 0) return;
#endif
    touch(memory, bytes);
    require_readable(memory, bytes);
  }
  static void require_unchanged(const std::weak_ptr<MappedFile>& mapped) {
    if (const std::shared_ptr<MappedFile> file = mapped.lock()) file->require_unchanged();
  }

  std::vector<std::weak_ptr<MappedFile>> files_;  // by layer; the storage of the records owns them
};

// The records of the files themselves: the slot of an expert is its number, and an expert that was made
// present keeps it. Pages that the system takes away again come back when launches read them.
class FilePlaces final : public Places {
 public:
  FilePlaces(const std::vector<MappedExperts>& layers, uint64_t stride) : layers_(layers), stride_(stride) {}

  void used(int32_t) override {}
  void hold(int32_t) override {}
  int32_t take(uint32_t, uint32_t expert) override { return int32_t(expert); }
  int32_t take_ahead(uint32_t, uint32_t expert, Hope hope) override {
    return hope == Hope::surely ? int32_t(expert) : kNone;
  }
  uint32_t most_ahead() const override { return UINT32_MAX; }
  uint8_t* memory(uint32_t layer, int32_t slot) const override {
    return const_cast<uint8_t*>(layers_[layer].records) + uint64_t(slot) * stride_;  // only read
  }
  bool keep(int32_t) override { return true; }
  void drop(int32_t) override {}
  void release(int32_t) override {}
  void resize(uint32_t, uint32_t) override {}
  bool is_sized(uint32_t, uint32_t) const override { return true; }
  uint32_t slots() const override { return 0; }
  uint32_t filled() const override { return 0; }

 private:
  const std::vector<MappedExperts> layers_;
  const uint64_t stride_;
};

}  // namespace
}  // namespace experts

std::shared_ptr<ExpertStore> map_expert_store(const std::vector<MappedExperts>& layers,
                                              const ExpertTables& tables, const ExpertStoreOptions& options) {
  std::vector<uint32_t> experts;
  for (const MappedExperts& layer : layers) {
    experts.push_back(layer.experts);
    if (reinterpret_cast<uintptr_t>(layer.records) % kDirectAlignment)
      throw Error(ErrorKind::argument, "expert store: expected records that start on a page of " +
                                           std::to_string(kDirectAlignment) + " bytes, got some that do not");
  }
  experts::check_options(experts, tables, options);
  return experts::share(std::make_unique<experts::Store>(
      experts, tables, options, std::make_unique<experts::PageSource>(layers),
      [&](std::vector<experts::LayerRows>&, const std::vector<experts::Scores>&) {
        return std::make_unique<experts::FilePlaces>(layers, options.stride);
      }));
}

}  // namespace pyturbo
