#include "core/connect/communicator_proof.h"

#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "consist/bfloat16.h"
#include "consist/error.h"

namespace consist {
namespace {

/// Elements of a part. Odd, and more than a cache line.
constexpr std::int64_t count = 61;

/// Returns the input of member `member` at element `i`: sums of up to a million members are exact in f32.
float given(int member, std::int64_t i) {
  return static_cast<float>((3 * member + i) % 11 + 1);
}
float sum_of_given(int members, std::int64_t i) {
  float sum = 0;
  for (int member = 0; member < members; ++member) sum += given(member, i);
  return sum;
}
/// For bf16, which has 8 bits: all but two members give 0.
float given_by_two(int member, int members, std::int64_t i) {
  const auto first = static_cast<int>(i % members), second = static_cast<int>((i + 1) % members);
  return member == first || member == second ? static_cast<float>(i % 7 + 1) : 0.0F;
}
float sum_of_two(int members, std::int64_t i) {
  return static_cast<float>((members > 1 ? 2 : 1) * (i % 7 + 1));
}

/// Runs one call on the queue of a launch.
class CallKernel final : public Kernel {
 public:
  CallKernel(Communicator& communicator, std::function<void(NativeQueue)> call)
      : communicator_(communicator), call_(std::move(call)) {}
  void launch(std::span<const Buffer> /*inputs*/, std::span<const Buffer> /*outputs*/, void* /*workspace*/,
              NativeQueue queue) override {
    call_(queue);
  }
  void check() override { communicator_.check(); }

 private:
  Communicator& communicator_;
  std::function<void(NativeQueue)> call_;
};

/// Device memory for a while.
class Scratch {
 public:
  Scratch(Device& device, std::int64_t bytes) : device_(device), memory_(device.allocate(MemorySpace::device, bytes)) {}
  ~Scratch() { device_.release(MemorySpace::device, memory_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  char* at(std::int64_t byte) const { return static_cast<char*>(memory_) + byte; }

 private:
  Device& device_;
  void* memory_;
};

class Proof {
 public:
  Proof(Communicator& communicator, Device& device, Queue queue, std::string who)
      : communicator_(communicator),
        device_(device),
        queue_(queue),
        who_(std::move(who)),
        members_(communicator.size()),
        own_(communicator.rank()),
        scratch_(device, 2 * whole_bytes()) {}

  void all_reduce() {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = given(own_, i);
    write(0, values);
    run([&](NativeQueue queue) { communicator_.all_reduce(scratch_.at(0), count, DType::f32, queue); });
    check("all_reduce", read(0, count), [&](std::int64_t i) { return sum_of_given(members_, i); });
  }

  void all_reduce_bf16() {
    std::vector<std::uint16_t> values(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = to_bfloat16(given_by_two(own_, members_, i));
    const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(values[0]));
    device_.upload(scratch_.at(0), values.data(), bytes);
    run([&](NativeQueue queue) { communicator_.all_reduce(scratch_.at(0), count, DType::bf16, queue); });
    device_.download(values.data(), scratch_.at(0), bytes);
    std::vector<float> found;
    for (std::uint16_t value : values) found.push_back(from_bfloat16(value));
    check("all_reduce in bf16", found, [&](std::int64_t i) { return sum_of_two(members_, i); });
  }

  void reduce_scatter() {
    std::vector<float> values(static_cast<std::size_t>(members_ * count));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = given(own_, static_cast<std::int64_t>(i));
    write(0, values);
    run([&](NativeQueue queue) {
      communicator_.reduce_scatter(scratch_.at(0), scratch_.at(whole_bytes()), count, DType::f32, queue);
    });
    check("reduce_scatter", read(whole_bytes(), count), [&](std::int64_t i) { return sum_of_given(members_, own_ * count + i); });
  }

  void all_gather() {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = part_value(own_, i);
    write(0, values);
    run([&](NativeQueue queue) {
      communicator_.all_gather(scratch_.at(0), scratch_.at(whole_bytes()), count, DType::f32, queue);
    });
    check("all_gather", read(whole_bytes(), members_ * count),
          [&](std::int64_t i) { return part_value(static_cast<int>(i / count), i % count); });
  }

  void all_to_all() {
    std::vector<float> values(static_cast<std::size_t>(members_ * count));
    for (int to = 0; to < members_; ++to) {
      for (std::int64_t i = 0; i < count; ++i)
        values[static_cast<std::size_t>(to * count + i)] = part_value(own_, i) + static_cast<float>(to);
    }
    write(0, values);
    run([&](NativeQueue queue) {
      communicator_.all_to_all(scratch_.at(0), count, scratch_.at(whole_bytes()), count, count, DType::f32, queue);
    });
    check("all_to_all", read(whole_bytes(), members_ * count),
          [&](std::int64_t i) { return part_value(static_cast<int>(i / count), i % count) + static_cast<float>(own_); });
  }
  void message() {
    std::vector<float> values(static_cast<std::size_t>(count), 0);
    for (std::int64_t i = 0; own_ == 0 && i < count; ++i) values[static_cast<std::size_t>(i)] = given(5, i);
    write(0, values);
    run([&](NativeQueue queue) {
      if (own_ == 0) return communicator_.send(scratch_.at(0), count, DType::f32, 1, queue);
      communicator_.receive(scratch_.at(0), count, DType::f32, 0, queue);
    });
    check("a message", read(0, count), [&](std::int64_t i) { return given(5, i); });
  }

 private:
  std::int64_t whole_bytes() const { return 4 * count * communicator_.size() / 256 * 256 + 256; }
  static float part_value(int member, std::int64_t i) { return static_cast<float>(member * count + i); }

  void run(std::function<void(NativeQueue)> call) {
    CallKernel kernel(communicator_, std::move(call));
    Launch launch;
    launch.kernel = &kernel;
    launch.queue = queue_;
    launch.label = "proof of a communicator";
    std::vector<Launch> launches;
    launches.push_back(std::move(launch));
    const std::unique_ptr<Executable> executable = device_.prepare(std::move(launches), false);
    executable->run();
    executable->wait();
  }
  void write(std::int64_t at, const std::vector<float>& values) {
    device_.upload(scratch_.at(at), values.data(), static_cast<std::int64_t>(values.size() * sizeof(float)));
  }
  std::vector<float> read(std::int64_t at, std::int64_t elements) {
    std::vector<float> values(static_cast<std::size_t>(elements));
    device_.download(values.data(), scratch_.at(at), static_cast<std::int64_t>(values.size() * sizeof(float)));
    return values;
  }
  template <typename Expected>
  void check(const char* what, const std::vector<float>& found, Expected expected) const {
    for (std::size_t i = 0; i < found.size(); ++i) {
      const float right = expected(static_cast<std::int64_t>(i));
      if (found[i] == right) continue;
      throw UnavailableError(who_ + " cannot be used: " + what + " of values that are known gave " + std::to_string(found[i]) +
                             " on member " + std::to_string(own_) + " of " + std::to_string(members_) + ", where " +
                             std::to_string(right) + " is right (element " + std::to_string(i) + " of " +
                             std::to_string(found.size()) + "); take another transport");
    }
  }

  Communicator& communicator_;
  Device& device_;
  const Queue queue_;
  const std::string who_;
  const int members_, own_;
  const Scratch scratch_;
};

}  // namespace

void prove_communicator(Communicator& communicator, bool link, Device& device, Queue queue, const std::string& who) {
  if (communicator.verified_path().empty()) {
    throw UnavailableError(who +
                           " cannot be used: it does not say by which path the bytes go (Communicator::verified_path() is "
                           "empty), so that nothing measured over it could be compared");
  }
  if (communicator.size() == 1) return;
  Proof proof(communicator, device, queue, who);
  if (link) return proof.message();
  proof.all_reduce();
  proof.all_reduce_bf16();
  proof.reduce_scatter();
  proof.all_gather();
  proof.all_to_all();
}

}  // namespace consist
