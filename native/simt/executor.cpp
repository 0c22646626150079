#include "simt/executor.h"

#include "simt/threadgroup.h"

namespace pyturbo::cpu {

void run_reference(const KernelInfo& info, const Arguments& arguments, const Dispatch& dispatch,
                   ThreadPool& pool) {
  const Launch launch{info, arguments, dispatch};
  pool.parallel_for(dispatch.groups.count(), [&](uint64_t index) {
    Threadgroup::this_thread().run(launch, group_at(dispatch.groups, index));
  });
}

}  // namespace pyturbo::cpu
