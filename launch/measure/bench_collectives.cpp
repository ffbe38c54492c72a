#include "launch/measure/bench_collectives.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>

#include "consist/error.h"
#include "launch/measure/collective_kinds.h"
#include "launch/measure/collective_model.h"

namespace consist::launch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t block_elements = collective_period * 4096;  // after which data is a copy of what came before

void put(std::byte* to, DType dtype, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (dtype == DType::f32) {
    std::memcpy(to, &bits, 4);
  } else {
    const auto upper = static_cast<std::uint16_t>(bits >> 16U);  // exact: whole numbers below 256
    std::memcpy(to, &upper, 2);
  }
}

/// Many calls of a collective as one instruction of a device.
class CollectiveKernel final : public Kernel {
 public:
  CollectiveKernel(Communicator& group, const Collective& collective, std::int64_t total, int calls)
      : group_(group), collective_(collective), total_(total), calls_(calls) {}
  void launch(std::span<const Buffer> inputs, std::span<const Buffer> outputs, void* /*workspace*/, NativeQueue queue) override {
    for (int i = 0; i < calls_; ++i) collective_.call(group_, inputs[0].data, outputs[0].data, total_, inputs[0].dtype, queue);
  }
  void check() override { group_.check(); }

 private:
  Communicator& group_;
  const Collective& collective_;
  const std::int64_t total_;
  const int calls_;
};

/// Memory of the device.
class DeviceBlock {
 public:
  DeviceBlock(Device& device, std::int64_t bytes)
      : device_(device), data_(device.allocate(MemorySpace::device, std::max<std::int64_t>(bytes, 256))) {}
  ~DeviceBlock() { device_.release(MemorySpace::device, data_); }
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;
  void* data() const { return data_; }

 private:
  Device& device_;
  void* data_;
};

/// A message to one member and another from it; nothing where the partner is the member itself.
class Exchange final : public Collective {
 public:
  explicit Exchange(int partner) : partner_(partner) {}
  int partner() const { return partner_; }
  const char* name() const override { return "exchange"; }
  std::int64_t input(std::int64_t total, int /*members*/) const override { return total; }
  std::int64_t output(std::int64_t total, int /*members*/) const override { return total; }
  void call(Communicator& group, void* input, void* output, std::int64_t total, DType dtype, NativeQueue queue) const override {
    if (partner_ == group.rank()) return;
    group.group_begin(queue);
    group.send(input, total, dtype, partner_, queue);
    group.receive(output, total, dtype, partner_, queue);
    group.group_end(queue);
  }
  bool has_result(int member, int /*members*/) const override { return member != partner_; }
  std::int64_t expected(int /*member*/, int /*members*/, std::int64_t /*total*/, std::int64_t i) const override {
    return collective_value(partner_, i);
  }

 private:
  const int partner_;
};

class Bench {
 public:
  Bench(Job& job, Device& device, Communicator& group, const BenchSettings& settings)
      : job_(job),
        device_(device),
        group_(group),
        settings_(settings),
        element_(static_cast<std::int64_t>(size_of(settings.dtype))),
        input_(device, elements(settings.max_bytes) * element_),
        output_(device, elements(settings.max_bytes) * element_),
        meeting_(device, 256) {}

  /// The largest size of at most `bytes` that divides among the members, at least one element each.
  std::int64_t elements(std::int64_t bytes) const {
    const std::int64_t per_member = std::max<std::int64_t>(bytes / element_ / group_.size(), 1);
    return per_member * group_.size();
  }

  /// Measures this member alone: others may call other collectives at the same time.
  PairRow exchange(const Exchange& pair, std::int64_t bytes) {
    const std::int64_t total = elements(bytes);
    PairRow row{.partner = pair.partner(), .rate = 0, .wrong = check(pair, total)};
    // As often on all ranks: partners must agree.
    const double once = job_.reduce("bench/once", {run(pair, total, 1)}, ReduceOp::max, job_.timeout()).front();
    const auto calls = static_cast<int>(std::clamp(settings_.seconds / std::max(once, 1e-7), 1.0, 20.0));
    const double least = std::min(run(pair, total, calls), run(pair, total, calls));
    row.rate = static_cast<double>(total * element_) / least;
    return row;
  }

  BenchRow measure(const Collective& collective, std::int64_t bytes) {
    const std::int64_t total = elements(bytes);
    BenchRow row{.bytes = total * element_, .count = collective.count(total, group_.size())};
    const std::int64_t wrong = check(collective, total);
    const double once = run(collective, total, 1);
    const double of_rank_0 = job_.rank() == 0 ? std::clamp(settings_.seconds / std::max(once, 1e-7), 3.0, 1000.0) : 0;
    const auto calls = static_cast<int>(sum_over_ranks("calls", of_rank_0));
    const double seconds = run(collective, total, calls);
    row.seconds = sum_over_ranks("seconds", seconds) / job_.size();
    row.wrong = static_cast<std::int64_t>(sum_over_ranks("wrong", static_cast<double>(wrong)));
    row.algbw = static_cast<double>(row.bytes) / row.seconds;
    row.busbw = row.algbw * collective.bus_factor(group_.size());
    return row;
  }

 private:
  std::unique_ptr<Executable> prepare(const Collective& collective, CollectiveKernel& kernel, std::int64_t total, void* in,
                                      void* out) const {
    Launch launch;
    launch.kernel = &kernel;
    const Shape read{collective.input(total, group_.size())};
    launch.inputs = {{in, settings_.dtype, read}};
    launch.outputs = {{collective.in_place() ? in : out, settings_.dtype,
                       collective.in_place() ? read : Shape{collective.output(total, group_.size())}}};
    launch.queue = Queue::communication(0);
    launch.label = collective.name();
    return device_.prepare({launch}, false);
  }

  /// Seconds per call. Members set out together, and what a device prepares in its first runs is not counted.
  double run(const Collective& collective, std::int64_t total, int calls) {
    CollectiveKernel kernel(group_, collective, total, calls), meet_kernel(group_, *collectives().front(), 1, 1);
    const auto timed = prepare(collective, kernel, total, input_.data(), output_.data());
    const auto meet = prepare(*collectives().front(), meet_kernel, 1, meeting_.data(), nullptr);
    constexpr int first_runs = 2;  // one at once, one recorded as a graph
    for (int i = 0; i < first_runs; ++i) {
      timed->run();
      timed->wait();
      meet->run();
      meet->wait();
    }
    meet->run();
    meet->wait();
    const Clock::time_point start = Clock::now();
    timed->run();
    timed->wait();
    return std::chrono::duration<double>(Clock::now() - start).count() / calls;
  }

  /// Runs it once on known data; returns how many elements of this rank's result are wrong.
  std::int64_t check(const Collective& collective, std::int64_t total) {
    const int member = group_.rank(), members = group_.size();
    const std::int64_t read = collective.input(total, members);
    host_.resize(static_cast<std::size_t>(std::max(read, total) * element_));
    fill(read, [&](std::int64_t i) { return collective_value(member, i); });
    device_.upload(input_.data(), host_.data(), read * element_);
    CollectiveKernel kernel(group_, collective, total, 1);
    const auto executable = prepare(collective, kernel, total, input_.data(), output_.data());
    executable->run();
    executable->wait();
    if (!collective.has_result(member, members)) return 0;
    const std::int64_t written = collective.in_place() ? read : collective.output(total, members);
    device_.download(host_.data(), collective.in_place() ? input_.data() : output_.data(), written * element_);
    const std::int64_t piece = collective.piece(total, members) == 0 ? written : collective.piece(total, members);
    std::int64_t wrong = 0;
    for (std::int64_t begin = 0; begin < written; begin += piece) {
      const std::int64_t block = std::min(piece, block_elements);
      right_.resize(static_cast<std::size_t>(block * element_));
      for (std::int64_t i = 0; i < block; ++i) {
        put(right_.data() + i * element_, settings_.dtype,
            static_cast<float>(collective.expected(member, members, total, begin + i)));
      }
      for (std::int64_t at = begin; at < begin + piece; at += block)
        wrong += differences(at, std::min(block, begin + piece - at));
    }
    return wrong;
  }

  /// Elements of host_ from `at` on that differ from right_.
  std::int64_t differences(std::int64_t at, std::int64_t elements) const {
    const std::byte* const found = host_.data() + at * element_;
    if (std::memcmp(found, right_.data(), static_cast<std::size_t>(elements * element_)) == 0) return 0;
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < elements; ++i) {
      wrong += std::memcmp(found + i * element_, right_.data() + i * element_, static_cast<std::size_t>(element_)) != 0 ? 1 : 0;
    }
    return wrong;
  }

  template <typename Value>
  void fill(std::int64_t elements, Value value) {
    const std::int64_t block = std::min(elements, block_elements);
    for (std::int64_t i = 0; i < block; ++i) put(host_.data() + i * element_, settings_.dtype, static_cast<float>(value(i)));
    for (std::int64_t done = block; done < elements; done += block) {
      std::memcpy(host_.data() + done * element_, host_.data(),
                  static_cast<std::size_t>(std::min(block, elements - done) * element_));
    }
  }

  double sum_over_ranks(const char* what, double own) {
    return job_.reduce(std::string("bench/") + what, {own}, ReduceOp::sum, job_.timeout()).front();
  }

  Job& job_;
  Device& device_;
  Communicator& group_;
  const BenchSettings& settings_;
  const std::int64_t element_;
  const DeviceBlock input_, output_, meeting_;
  std::vector<std::byte> host_;
  std::vector<std::byte> right_;  ///< what a block of the result must be
};

void print_head(const Collective& collective, int members) {
  std::printf("#\n# %s, %s, busbw = %.3g x algbw\n", collective.name(), collective.in_place() ? "in place" : "out of place",
              collective.bus_factor(members));
  std::printf("#%11s %13s %6s %6s %5s %10s %8s %8s %6s\n", "size", "count", "type", "redop", "root", "time", "algbw", "busbw",
              "#wrong");
  std::printf("#%11s %13s %6s %6s %5s %10s %8s %8s\n", "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)");
}

void print_row(const Collective& collective, DType dtype, const BenchRow& row) {
  std::printf("%12lld %13lld %6s %6s %5d %10.2f %8.2f %8.2f %6lld\n", static_cast<long long>(row.bytes),
              static_cast<long long>(row.count), std::string(name_of(dtype)).c_str(), collective.operation(), collective.root(),
              row.seconds * 1e6, row.algbw / 1e9, row.busbw / 1e9, static_cast<long long>(row.wrong));
  std::fflush(stdout);
}

/// The links that would make these times in a ring.
void print_fit(const Collective& collective, int members, const std::vector<TimedCall>& calls) {
  const std::vector<std::string>& modelled = modelled_collectives();
  const bool has_model = std::find(modelled.begin(), modelled.end(), collective.name()) != modelled.end();
  if (!has_model || members < 2 || calls.size() < 2) return;
  const LinkModel links = fit_links(collective.name(), members, calls);
  std::printf("# fits links of %.3g GB/s and %.3g us a step; for other sizes and members:\n", links.bandwidth / 1e9,
              links.latency * 1e6);
  std::printf("#   consist bench expect --collective %s --bandwidth %.3g --efficiency 1 --latency %.3g --members N --bytes B\n",
              collective.name(), links.bandwidth, links.latency);
}

}  // namespace

const std::vector<std::string>& collective_names() {
  static const auto names = [] {
    std::vector<std::string> all;
    for (const auto& collective : collectives()) all.emplace_back(collective->name());
    return all;
  }();
  return names;
}

std::vector<BenchRow> time_collective(Job& job, Device& device, Communicator& communicator, const std::string& name,
                                      const BenchSettings& settings) {
  Bench bench(job, device, communicator, settings);
  std::vector<BenchRow> rows;
  for (std::int64_t bytes = settings.min_bytes; bytes <= settings.max_bytes; bytes *= settings.factor)
    rows.push_back(bench.measure(collective_named(name), bytes));
  return rows;
}

namespace {

/// The partner of `member` in a round of a tournament of `members`, itself where it has none: member 0 of an even number stays,
/// the others go round.
int partner_in(int round, int member, int members) {
  const int even = members + members % 2, others = even - 1;
  int partner = 0;
  if (member == round) {
    partner = others;
  } else if (member == others) {
    partner = round;
  } else {
    partner = ((2 * round - member) % others + others) % others;
  }
  return partner < members ? partner : member;
}

}  // namespace

std::vector<PairRow> time_pairs(Job& job, Device& device, Communicator& communicator, std::int64_t bytes, int most_rounds) {
  const int members = communicator.size(), rounds = members + members % 2 - 1;
  const BenchSettings settings{.min_bytes = bytes, .max_bytes = bytes, .seconds = 0.05};
  Bench bench(job, device, communicator, settings);
  std::vector<PairRow> rows;
  for (int round = 0; round < std::min(rounds, most_rounds); ++round) {
    const Exchange pair(partner_in(round, communicator.rank(), members));
    const PairRow row = bench.exchange(pair, bytes);
    if (row.partner != communicator.rank()) rows.push_back(row);
  }
  return rows;
}

std::int64_t bench_collectives(Job& job, Device& device, Communicator& communicator, const BenchSettings& settings) {
  Bench bench(job, device, communicator, settings);
  std::int64_t wrong = 0;
  for (const std::string& name : settings.collectives) {
    const Collective& collective = collective_named(name);
    std::vector<TimedCall> calls;
    if (job.rank() == 0) print_head(collective, communicator.size());
    for (std::int64_t bytes = settings.min_bytes; bytes <= settings.max_bytes; bytes *= settings.factor) {
      const BenchRow row = bench.measure(collective, bytes);
      if (job.rank() == 0) print_row(collective, settings.dtype, row);
      wrong += row.wrong;
      calls.push_back({static_cast<double>(row.bytes), row.seconds});
    }
    if (job.rank() == 0) print_fit(collective, communicator.size(), calls);
  }
  if (job.rank() == 0) std::printf("#\n# wrong elements: %lld%s\n", static_cast<long long>(wrong), wrong == 0 ? ", OK" : "");
  return wrong;
}

}  // namespace consist::launch
