#include "plugins/transports/nccl/stall_detector.h"

#include <new>

namespace consist::nccl {

StallDetector::StallDetector(const Driver& driver) : driver_(driver) {
  void* memory = nullptr;
  driver_.check(driver_.allocate_host(&memory, 2 * sizeof(std::atomic<std::uint32_t>),
                                      CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE),
                "allocating 8 bytes of host memory");
  words_ = new (memory) std::atomic<std::uint32_t>[2];
  words_[0] = 0;
  words_[1] = taken;
  driver_.check(driver_.device_pointer(&device_words_, memory, 0), "mapping host memory");
  driver_.check(driver_.create_event(&event_, CU_EVENT_DISABLE_TIMING), "making an event");
}

StallDetector::~StallDetector() {
  driver_.destroy_event(event_);
  driver_.release_host(words_);
}

void StallDetector::write(CUstream stream, std::initializer_list<std::pair<int, std::uint32_t>> values) {
  CUstreamBatchMemOpParams writes[2] = {};
  unsigned count = 0;
  for (const auto& [word, value] : values) {
    writes[count].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    writes[count].writeValue.address = device_words_ + static_cast<CUdeviceptr>(word) * sizeof(std::uint32_t);
    writes[count].writeValue.value = value;
    ++count;
  }
  driver_.check(driver_.batch_writes(stream, count, writes, 0), "marking a collective in a graph");
}

void StallDetector::before(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  driver_.check(driver_.is_capturing(stream, &status), "asking whether a stream is being captured");
  capturing_ = status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (capturing_) write(stream, {{0, ++captured_}});
}

void StallDetector::after(CUstream stream) {
  if (capturing_) {
    write(stream, {{1, captured_}, {0, 0}});
    return;
  }
  const std::lock_guard lock(mutex_);
  driver_.check(driver_.record_event(event_, stream), "recording an event");
  recorded_ = true;
  ++progress_;
}

StallDetector::State StallDetector::look() {
  const std::lock_guard lock(mutex_);
  if (recorded_ && driver_.query_event(event_) != CUDA_ERROR_NOT_READY) {
    recorded_ = false;
    ++progress_;
  }
  const bool inside = words_[0].load() != 0;
  if (words_[1].exchange(taken) != taken) ++progress_;
  return {recorded_ || inside, progress_};
}

}  // namespace consist::nccl
