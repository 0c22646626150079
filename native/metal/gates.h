// Launches that are committed before it is known whether they may run.
#pragma once

#include <memory>
#include <span>

#include "metal/memory.h"
#include "pyturbo/device.h"
#include "pyturbo/storage.h"

namespace pyturbo::metal {

// The gates of one replay with host loops: one kernel launch for each loop, which clears the numbers of
// threadgroups behind the loop if something is missing. It is encoded before the ask and decides from the end
// of its loop to the end of the next one, so no launch reads its number in the command buffer that changes
// it. Owner: one run of the device, on its thread.
class Gates {
 public:
  // Returns the bytes that the gates of so many launches need.
  static uint64_t bytes(size_t launches);

  // `storage` has that many bytes and is known to the device. `kernel` is the one called gate.
  Gates(std::span<const ReadyLaunch> launches, std::span<const ReadyLoop> loops, const KernelInfo& kernel,
        std::shared_ptr<Storage> storage);

  // Opens the gates from that of loop `first` on. Nothing that uses them may be running.
  void open(size_t first);

  // Returns the address of the numbers of threadgroups: three words for each launch.
  const uint32_t* groups() const { return groups_; }

  // Returns the launch that is the gate of a loop. It refers to this object and lasts until the next call.
  ReadyLaunch launch(size_t loop);

 private:
  const std::span<const ReadyLaunch> launches_;
  const std::span<const ReadyLoop> loops_;
  const KernelInfo& kernel_;
  const std::shared_ptr<Storage> storage_;
  uint32_t* const passed_;  // gates that were open, from the first one on
  uint32_t* const groups_;  // [launches, 3]
  uint32_t values_[3] = {};
  Arguments arguments_;
};

}  // namespace pyturbo::metal
