#include "cpu/kernels/scratch.h"

#include <cstdlib>
#include <memory>
#include <string>

#include "pyturbo/error.h"

namespace pyturbo::cpu {
namespace {

// Owner: one thread, which alone uses it. Grows, and is freed when the thread ends.
class Block {
 public:
  void* reserve(size_t bytes) {
    if (bytes > bytes_) {
      memory_.reset();
      bytes_ = 0;
      const size_t rounded = (bytes + 4095) / 4096 * 4096;
      memory_.reset(std::aligned_alloc(64, rounded));
      if (!memory_)
        throw Error(ErrorKind::memory, "cannot allocate " + std::to_string(bytes) + " bytes for a launch");
      bytes_ = rounded;
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
  size_t bytes_ = 0;
};

}  // namespace

void* item_scratch(size_t bytes) {
  static thread_local Block block;
  return block.reserve(bytes);
}

}  // namespace pyturbo::cpu
