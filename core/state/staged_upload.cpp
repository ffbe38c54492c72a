#include "core/state/staged_upload.h"

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

#include "consist/error.h"

namespace consist {
namespace {

constexpr std::int64_t block_bytes = std::int64_t{16} << 20;  // enough for a bus's full speed

}  // namespace

StagedUpload::StagedUpload(Device& device, int threads)
    : device_(device), threads_(threads), memory_(device.allocate(MemorySpace::host, ring * block_bytes)) {
  for (std::int64_t i = 0; i < ring; ++i) block(i).memory = static_cast<char*>(memory_) + i * block_bytes;
}

StagedUpload::~StagedUpload() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_there_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  device_.release(MemorySpace::host, memory_);
}

void StagedUpload::write(std::span<const Target> targets, std::int64_t elements, Make make) {
  std::int64_t bytes = 0;
  for (const Target& target : targets) bytes += target.element_bytes;
  if (targets.size() > most_targets || bytes <= 0) {
    throw ProgramError("values are uploaded to 1 to " + std::to_string(most_targets) + " arrays at once, not " +
                       std::to_string(targets.size()));
  }
  const std::int64_t at_once = block_bytes / bytes / most_elements * most_elements;
  const auto shared = std::make_shared<const Make>(std::move(make));
  for (std::int64_t first = 0; first < elements; first += at_once) {
    if (begun_ - uploaded_ == ring) upload_oldest();
    begin_next_block(targets, first, std::min(at_once, elements - first), shared);
  }
}

void StagedUpload::finish() {
  while (uploaded_ < begun_) upload_oldest();
}

void StagedUpload::begin_next_block(std::span<const Target> targets, std::int64_t first, std::int64_t count,
                                    const std::shared_ptr<const Make>& make) {
  Block& next = block(begun_);
  next.first = first;
  next.count = count;
  next.pieces = (count + most_elements - 1) / most_elements;
  next.make = make;
  next.target_count = targets.size();
  char* staged = next.memory;
  for (std::size_t t = 0; t < targets.size(); ++t) {
    next.targets[t] = {static_cast<char*>(targets[t].address) + first * targets[t].element_bytes, targets[t].element_bytes};
    next.staged[t] = staged;
    staged += next.pieces * most_elements * targets[t].element_bytes;
  }
  if (next.pieces > 1 && workers_.empty()) start_workers();
  next.unmade.store(next.pieces, std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);  // a worker that has just found nothing to do must not miss this
    next.untaken.store(next.pieces, std::memory_order_release);
  }
  ++begun_;
  work_there_.notify_all();
}

void StagedUpload::upload_oldest() {
  Block& oldest = block(uploaded_);
  while (oldest.unmade.load(std::memory_order_acquire) > 0) {
    if (make_piece()) continue;
    std::unique_lock lock(mutex_);
    block_made_.wait(lock, [&] { return oldest.unmade.load(std::memory_order_acquire) == 0; });
  }
  if (failed_) {
    const std::lock_guard lock(mutex_);
    std::rethrow_exception(error_);
  }
  for (std::size_t t = 0; t < oldest.target_count; ++t)
    device_.upload(oldest.targets[t].address, oldest.staged[t], oldest.count * oldest.targets[t].element_bytes);
  oldest.make.reset();
  ++uploaded_;
}

bool StagedUpload::make_piece() {
  const std::int64_t oldest = uploaded_;
  for (std::int64_t number = oldest; number < oldest + ring; ++number) {
    Block& candidate = block(number);
    if (candidate.untaken.load(std::memory_order_relaxed) <= 0) continue;
    // The block may have become another one by now: then it is a piece of that. What a block says is read only by who has a piece
    // of it, without which it cannot end.
    const std::int64_t left = candidate.untaken.fetch_sub(1, std::memory_order_acquire);
    if (left <= 0) continue;
    make_piece_of(candidate, candidate.pieces - left);
    return true;
  }
  return false;
}

void StagedUpload::make_piece_of(Block& block, std::int64_t piece) {
  const std::int64_t first = piece * most_elements;
  std::array<char*, most_targets> out{};
  for (std::size_t t = 0; t < block.target_count; ++t) out[t] = block.staged[t] + first * block.targets[t].element_bytes;
  try {
    if (!failed_ && !stopping_)
      (*block.make)(block.first + first, std::min(most_elements, block.count - first), {out.data(), block.target_count});
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
    failed_ = true;
  }
  if (block.unmade.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  { const std::lock_guard lock(mutex_); }  // whoever waits has either not looked yet or sleeps already
  block_made_.notify_all();
}

void StagedUpload::start_workers() {
  try {
    while (static_cast<int>(workers_.size()) < threads_ - 1) workers_.emplace_back([this] { work(); });
  } catch (const std::system_error& error) {
    throw SystemError("cannot start " + std::to_string(threads_ - 1) + " threads for making weights: " + error.what());
  }
}

void StagedUpload::work() {
  const auto has_work = [this] {
    return std::any_of(blocks_.begin(), blocks_.end(),
                       [](const Block& block) { return block.untaken.load(std::memory_order_relaxed) > 0; });
  };
  while (!stopping_) {
    if (make_piece()) continue;
    std::unique_lock lock(mutex_);
    work_there_.wait(lock, [&] { return stopping_ || has_work(); });
  }
}

}  // namespace consist
