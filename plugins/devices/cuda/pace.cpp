#include "plugins/devices/cuda/pace.h"

#include <unistd.h>

#include "plugins/devices/cuda/check.h"

namespace consist::cuda {

Pace::Pace(cudaStream_t stream, int launches) : stream_(stream), launches_(launches) {
  for (cudaEvent_t& event : behind_) check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
}

Pace::~Pace() {
  for (cudaEvent_t event : behind_) cudaEventDestroy(event);
}

void Pace::keep() {
  if (count_ % launches_ == 0) {
    cudaEvent_t event = behind_[static_cast<std::size_t>(count_ / launches_ % 2)];
    cudaError_t status = cudaEventQuery(event);  // before it is first recorded: done
    for (; status == cudaErrorNotReady; status = cudaEventQuery(event)) usleep(20);
    check(status, "waiting for earlier launches");
    check(cudaEventRecord(event, stream_), "cudaEventRecord");
  }
  ++count_;
}

}  // namespace consist::cuda
