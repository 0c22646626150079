// Records that are read from files.
#pragma once

#include <memory>
#include <vector>

#include "experts/reader.h"
#include "experts/record_file.h"

namespace pyturbo::experts {

class FileSource final : public Source {
 public:
  // Opens the files, as RecordFile does.
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

}  // namespace pyturbo::experts
