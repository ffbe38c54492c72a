#include "launch/measure/host_link.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "consist/error.h"

namespace consist::launch {
namespace {

/// Size and number of the copies in a run. Within the memory of a processor copies are slow, and start at once.
struct Amount {
  std::int64_t bytes = std::int64_t{64} << 20;  ///< of a copy
  int copies = 8;
};
Amount amount_for(const DeviceInfo& info) {
  return info.kind == "cpu" ? Amount{std::int64_t{16} << 20, 2} : Amount{};
}
constexpr int timed_runs = 3;
constexpr Queue queues[] = {Queue::host_to_device(), Queue::device_to_host()};

class Memory {
 public:
  Memory(Device& device, MemorySpace space, std::int64_t bytes)
      : device_(device), space_(space), bytes_(bytes), data_(device.allocate(space, bytes)) {}
  ~Memory() { device_.release(space_, data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  Buffer buffer() const { return {data_, DType::f32, Shape{bytes_ / 4}, 0, space_}; }

 private:
  Device& device_;
  MemorySpace space_;
  std::int64_t bytes_;
  void* data_;
};

/// One direction's memory and kernel.
class Copier {
 public:
  Copier(Device& device, int direction, std::int64_t bytes)
      : queue_(queues[direction]),
        from_(device, direction == 0 ? MemorySpace::host : MemorySpace::device, bytes),
        to_(device, direction == 0 ? MemorySpace::device : MemorySpace::host, bytes),
        in_(from_.buffer()),
        out_(to_.buffer()) {
    const std::string kind = device.info().kind;
    const Attributes none;
    const auto request = [](Buffer buffer) {
      buffer.data = nullptr;
      return buffer;
    };
    const Buffer in = request(in_), out = request(out_);
    kernel_ = device.make_kernel({"copy", {&in, 1}, {&out, 1}, none, {}, {}, kind});
    if (!kernel_) throw UnavailableError("the device has no kernel that copies");
  }

  void add_to(std::vector<Launch>& launches, int copies) const {
    for (int n = 0; n < copies; ++n) {
      Launch launch;
      launch.kernel = kernel_.get();
      launch.inputs = {in_};
      launch.outputs = {out_};
      launch.queue = queue_;
      launch.label = "copy";
      launches.push_back(std::move(launch));
    }
  }

 private:
  Queue queue_;
  Memory from_, to_;
  Buffer in_, out_;
  std::unique_ptr<Kernel> kernel_;
};

class HostLinkBench {
 public:
  HostLinkBench(Job& job, Device& device) : job_(job), device_(device), amount_(amount_for(device.info())) {}

  HostLink run() {
    HostLink link;
    try {
      for (int direction = 0; direction < 2; ++direction) copiers_[direction].emplace(device_, direction, amount_.bytes);
    } catch (const Error& error) {
      link.problem = error.what();
    }
    // If one rank cannot, no rank does.
    const double ready = link.problem.empty() ? 1 : 0;
    if (over_ranks("ready", ready, ReduceOp::min) < ready) link.problem = "another rank could not";
    if (!link.problem.empty()) return link;
    for (int direction = 0; direction < 2; ++direction) {
      const std::vector<int> one{direction};
      link.alone[direction] = rate_of_rank_0(one);
      link.shared[direction] = mean_rate(one);
    }
    // While both copy, the slower one's time counts for both.
    link.both = std::min(1.0, mean_rate({0, 1}) / std::min(link.shared[0], link.shared[1]));
    return link;
  }

 private:
  /// Bytes/s in each of these directions, all at the same time.
  double rate(const std::vector<int>& directions) {
    std::vector<Launch> launches;
    for (const int direction : directions) copiers_[direction]->add_to(launches, amount_.copies);
    const std::unique_ptr<Executable> executable = device_.prepare(std::move(launches), false);
    constexpr int first_runs = 2;  // one at once, one recorded as a graph
    for (int n = 0; n < first_runs; ++n) {
      executable->run();
      executable->wait();
    }
    double least = std::numeric_limits<double>::infinity();  // what else happens on the machine only takes time
    for (int n = 0; n < timed_runs; ++n) {
      meet();
      const auto start = std::chrono::steady_clock::now();
      executable->run();
      executable->wait();
      least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return static_cast<double>(amount_.copies * amount_.bytes) / least;
  }

  double over_ranks(const char* what, double own, ReduceOp how) {
    return job_.reduce(std::string("calibrate/host/") + what, {own}, how, job_.timeout()).front();
  }
  void meet() { job_.barrier("calibrate/host/" + std::to_string(++meetings_), job_.timeout()); }

  double rate_of_rank_0(const std::vector<int>& directions) {
    double own = 0;
    if (job_.rank() == 0) {
      own = rate(directions);
    } else {
      for (int n = 0; n < timed_runs; ++n) meet();  // with rank 0, before it measures
    }
    return over_ranks("alone", own, ReduceOp::sum);
  }

  double mean_rate(const std::vector<int>& directions) {
    return over_ranks("all", rate(directions), ReduceOp::sum) / job_.size();
  }

  Job& job_;
  Device& device_;
  const Amount amount_;
  std::optional<Copier> copiers_[2];
  int meetings_ = 0;
};

}  // namespace

HostLink measure_host_link(Job& job, Device& device) {
  return HostLinkBench(job, device).run();
}

}  // namespace consist::launch
