#include "plugins/devices/cpu/executable.h"

#include <omp.h>

#include <chrono>
#include <map>

namespace consist::cpu {

CpuExecutable::CpuExecutable(std::vector<Launch> launches, int threads, bool profile)
    : launches_(std::move(launches)),
      awaited_(launches_.size(), false),
      profile_(profile),
      times_(profile ? launches_.size() : 0),
      finished_(std::make_unique<std::atomic<std::uint32_t>[]>(launches_.size())) {
  std::map<Queue, Lane*> lane_of;
  for (std::size_t i = 0; i < launches_.size(); ++i) {
    Lane*& lane = lane_of[launches_[i].queue];
    if (lane == nullptr) {
      lanes_.push_back(std::make_unique<Lane>());
      lane = lanes_.back().get();
      lane->queue = launches_[i].queue;
    }
    lane->launches.push_back(static_cast<std::int32_t>(i));
    for (std::int32_t wait : launches_[i].waits) awaited_[static_cast<std::size_t>(wait)] = true;
  }
  for (auto& lane : lanes_) {
    lane->thread = std::thread([this, &lane = *lane, threads] { serve(lane, threads); });
  }
}

CpuExecutable::~CpuExecutable() {
  quit_ = true;
  generation_.fetch_add(1);
  generation_.notify_all();
  for (auto& lane : lanes_) lane->thread.join();
}

void CpuExecutable::run() {
  failed_ = false;
  failure_ = nullptr;
  lanes_done_ = 0;
  began_ = std::chrono::steady_clock::now();
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
}

void CpuExecutable::wait() {
  for (std::uint32_t done = lanes_done_; done < lanes_.size(); done = lanes_done_) lanes_done_.wait(done);
  if (failure_) std::rethrow_exception(failure_);
  position_.store(-1, std::memory_order_relaxed);
}

void CpuExecutable::serve(Lane& lane, int threads) {
  omp_set_num_threads(lane.queue == Queue::compute() ? threads : 1);
  for (std::uint32_t seen = 0;;) {
    generation_.wait(seen, std::memory_order_acquire);
    seen = generation_.load(std::memory_order_acquire);
    if (quit_) return;
    run_lane(lane, seen);
    lanes_done_.fetch_add(1, std::memory_order_release);
    lanes_done_.notify_all();
  }
}

void CpuExecutable::run_lane(Lane& lane, std::uint32_t generation) {
  for (std::int32_t index : lane.launches) {
    const auto at = static_cast<std::size_t>(index);
    for (std::int32_t wait : launches_[at].waits) {
      auto& other = finished_[static_cast<std::size_t>(wait)];
      for (std::uint32_t state = other.load(std::memory_order_acquire); state != generation;
           state = other.load(std::memory_order_acquire)) {
        other.wait(state, std::memory_order_acquire);
      }
    }
    if (!failed_.load(std::memory_order_acquire)) {
      try {
        launch(index);
      } catch (...) {
        std::lock_guard lock(failure_mutex_);
        if (!failure_) failure_ = std::current_exception();
        failed_.store(true, std::memory_order_release);
      }
    }
    finished_[at].store(generation, std::memory_order_release);
    if (awaited_[at]) finished_[at].notify_all();
  }
}

void CpuExecutable::launch(std::int32_t index) {
  Launch& l = launches_[static_cast<std::size_t>(index)];
  position_.store(index, std::memory_order_relaxed);
  if (!profile_) {
    l.kernel->launch(l.inputs, l.outputs, l.workspace, nullptr);
    return;
  }
  const auto now = [this] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count(); };
  LaunchTime& time = times_[static_cast<std::size_t>(index)];
  time.begin = now();
  l.kernel->launch(l.inputs, l.outputs, l.workspace, nullptr);
  time.end = now();
}

}  // namespace consist::cpu
