// What every set of kernels must do: keys that nobody else has, of ops that are registered; kernels for its examples, on the
// device that it is for, which write all of their outputs, the same each time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <tuple>

#include "consist/error.h"
#include "consist/kernel_registry.h"
#include "core/plugin/kernel_sets.h"
#include "tests/conformance/parts/parts.h"

namespace consist {
namespace {

using testing::Candidate;
using testing::host;

class KernelsConformance : public ::testing::TestWithParam<Candidate> {
 protected:
  void SetUp() override {
    set_ = host().make<KernelSet>("kernels", GetParam().name, GetParam().options);
    device_kind_ = set_->keys().front().device;
  }
  std::shared_ptr<KernelSet> set_;
  std::string device_kind_;
};

TEST_P(KernelsConformance, ItsKeysAreOfOneDeviceAndDifferent) {
  std::set<std::tuple<std::string, std::string, DType>> keys;
  for (const KernelKey& key : set_->keys()) {
    EXPECT_EQ(key.device, device_kind_) << "a set is for one kind of device";
    EXPECT_FALSE(key.op.empty());
    EXPECT_FALSE(key.dtypes.empty()) << key.op;
    for (const DType dtype : key.dtypes)
      EXPECT_TRUE(keys.emplace(key.device, key.op, dtype).second) << key.op << " of " << name_of(dtype) << " is there twice";
  }
}

TEST_P(KernelsConformance, EveryOpHasAnExampleThatItsInferAccepts) {
  std::set<std::string> shown;
  for (const KernelExample& example : set_->examples()) {
    shown.insert(example.op);
    const Op* op = registry().find(example.op);
    if (op == nullptr && device_kind_ != "cpu") continue;  // the plugin that has the op is another one
    ASSERT_NE(op, nullptr) << "nobody registers the op '" << example.op << "'";
    EXPECT_FALSE(op->infer(example.inputs, example.attributes).empty()) << example.op;
    EXPECT_THROW(op->infer({}, example.attributes), ProgramError) << example.op << " of no inputs";
  }
  for (const KernelKey& key : set_->keys()) EXPECT_TRUE(shown.contains(key.op)) << "'" << key.op << "' has no example";
}

/// Memory of the device for a tensor.
class Block {
 public:
  Block(Device& device, const TensorType& type) : device_(device), type_(type) {
    bytes_ = type.shape.elements() * static_cast<std::int64_t>(size_of(type.dtype));
    memory_ = device.allocate(MemorySpace::device, bytes_);
  }
  ~Block() { device_.release(MemorySpace::device, memory_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  Buffer buffer() const { return {memory_, type_.dtype, type_.shape}; }
  void write(const std::vector<char>& bytes) { device_.upload(memory_, bytes.data(), bytes_); }
  std::vector<char> read() const {
    std::vector<char> bytes(static_cast<std::size_t>(bytes_));
    device_.download(bytes.data(), memory_, bytes_);
    return bytes;
  }
  /// Numbers around zero in a float type; ids 0 and 1 otherwise.
  void fill(int salt) {
    std::vector<char> bytes(static_cast<std::size_t>(bytes_));
    for (std::int64_t i = 0; i < type_.shape.elements(); ++i) {
      const auto x = static_cast<float>((i * 7 + salt) % 13) / 4 - 1.5F;
      const std::int32_t id = static_cast<std::int32_t>(i % 2);
      std::uint32_t bits = 0;
      std::memcpy(&bits, &x, sizeof bits);
      const auto upper = static_cast<std::uint16_t>(bits >> 16);
      if (type_.dtype == DType::f32) std::memcpy(bytes.data() + i * 4, &x, 4);
      if (type_.dtype == DType::bf16) std::memcpy(bytes.data() + i * 2, &upper, 2);
      if (type_.dtype == DType::i32) std::memcpy(bytes.data() + i * 4, &id, 4);
    }
    write(bytes);
  }

 private:
  Device& device_;
  TensorType type_;
  std::int64_t bytes_ = 0;
  void* memory_ = nullptr;
};

/// One launch of an example on the device; the bytes of its outputs, which held `before` in every byte.
std::vector<std::vector<char>> launched(Device& device, KernelSet& set, const KernelExample& example, const std::string& kind,
                                        char before) {
  const Op& op = registry().get(example.op);
  const Types made = op.infer(example.inputs, example.attributes);
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<Buffer> inputs, outputs;
  std::vector<Block*> results;
  const auto place = [&](const std::optional<TensorType>& type, std::vector<Buffer>& buffers) -> Block* {
    if (!type) {
      buffers.push_back({nullptr, DType::u8, Shape{0}});
      return nullptr;
    }
    blocks.push_back(std::make_unique<Block>(device, *type));
    buffers.push_back(blocks.back()->buffer());
    return blocks.back().get();
  };
  for (std::size_t i = 0; i < example.inputs.size(); ++i) {
    if (Block* block = place(example.inputs[i], inputs)) block->fill(static_cast<int>(i));
  }
  for (std::size_t k = 0; k < made.size(); ++k) {
    const int updated = op.updates_in_place(static_cast<int>(k));
    if (updated >= 0 && static_cast<std::size_t>(updated) < inputs.size() &&
        !inputs[static_cast<std::size_t>(updated)].absent()) {
      outputs.push_back(inputs[static_cast<std::size_t>(updated)]);
      continue;
    }
    if (Block* block = place(made[k], outputs)) {
      results.push_back(block);
      block->write(std::vector<char>(block->read().size(), before));
    }
  }
  KernelRequest request{example.op, inputs, outputs, example.attributes};
  request.device = kind;
  const std::unique_ptr<Kernel> kernel = set.make_kernel(request);
  if (kernel == nullptr) throw Error("there is no kernel for the example of '" + example.op + "'");
  const Block scratch(device, {DType::u8, {std::max<std::int64_t>(1, kernel->workspace_bytes())}});
  Launch launch{.kernel = kernel.get(), .inputs = inputs, .outputs = outputs, .workspace = scratch.buffer().data};
  launch.label = example.op;
  const std::unique_ptr<Executable> executable = device.prepare({launch}, false);
  executable->run();
  executable->wait();
  std::vector<std::vector<char>> bytes;
  for (const Block* block : results) bytes.push_back(block->read());
  return bytes;
}

TEST_P(KernelsConformance, ItsExamplesWriteAllOfTheirOutputsTheSameEachTime) {
  const std::string reason = host().unavailable(host().find("device", device_kind_), std::chrono::seconds(20));
  if (!reason.empty()) GTEST_SKIP() << "the device '" << device_kind_ << "' cannot work here: " << reason;
  const auto device = host().make<Device>("device", device_kind_, {});
  device->open(0, 1);
  for (const KernelExample& example : set_->examples()) {
    if (registry().find(example.op) == nullptr) continue;
    SCOPED_TRACE(example.op);
    const auto first = launched(*device, *set_, example, device_kind_, 0x11);
    EXPECT_EQ(first, launched(*device, *set_, example, device_kind_, 0x11)) << "the same inputs gave other numbers";
    EXPECT_EQ(first, launched(*device, *set_, example, device_kind_, 0x22)) << "some bytes of an output were not written";
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, KernelsConformance,
                         ::testing::ValuesIn(testing::candidates("kernels", "CONSIST_CONFORMANCE_KERNELS")),
                         [](const auto& info) { return testing::test_name(info); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(KernelsConformance);

}  // namespace
}  // namespace consist
