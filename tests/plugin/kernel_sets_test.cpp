// Kernels that plugins bring: found by device, op and dtype; two for one key are refused with both names; faults are reported
// with one.
#include "core/plugin/kernel_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "consist/error.h"
#include "core/plugin/guarded.h"
#include "tests/plugin/test_plugins.h"

namespace consist {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Fails final : public Kernel {
 public:
  void launch(std::span<const Buffer>, std::span<const Buffer>, void*, NativeQueue) override {
    throw std::out_of_range("row 17");
  }
};

class Set final : public KernelSet {
 public:
  explicit Set(std::vector<KernelKey> keys) : keys_(std::move(keys)) {}
  std::vector<KernelKey> keys() const override { return keys_; }
  std::unique_ptr<Kernel> make_kernel(const KernelRequest&) override { return std::make_unique<Fails>(); }
  std::vector<KernelExample> examples() const override { return {}; }

 private:
  std::vector<KernelKey> keys_;
};

const PluginIdentity one{"kernels 'one'", "/one.so"};

std::shared_ptr<KernelSet> set_of(std::vector<KernelKey> keys) {
  return guarded(std::make_shared<Set>(std::move(keys)), one);
}

std::unique_ptr<Kernel> make(const KernelSets& sets, const char* device, const char* op, DType dtype) {
  const Attributes none;
  const Buffer absent{nullptr, DType::u8, Shape{0}}, x{nullptr, dtype, Shape{4}};
  const Buffer inputs[] = {absent, x};
  KernelRequest request{op, inputs, {&x, 1}, none};
  request.device = device;
  return sets.make(request);
}

TEST(KernelSets, AreAskedByDeviceOpAndTheDtypeOfTheFirstOperand) {
  KernelSets sets;
  sets.add(set_of({{"cpu", "twist", {DType::f32, DType::bf16}}}), "kernels 'one' (/one.so)");
  EXPECT_NE(make(sets, "cpu", "twist", DType::f32), nullptr);
  EXPECT_NE(make(sets, "cpu", "twist", DType::bf16), nullptr);
  EXPECT_EQ(make(sets, "cpu", "twist", DType::i32), nullptr);
  EXPECT_EQ(make(sets, "cuda", "twist", DType::f32), nullptr);
  EXPECT_EQ(make(sets, "cpu", "turn", DType::f32), nullptr);
}

TEST(KernelSets, ASecondKernelForAKeyIsAnErrorThatNamesBothPlugins) {
  KernelSets sets;
  sets.add(set_of({{"cpu", "twist", {DType::f32}}}), "kernels 'one' (/one.so)");
  EXPECT_THAT(
      message_of<UsageError>([&] {
        sets.add(set_of({{"cpu", "turn", {DType::f32}}, {"cpu", "twist", {DType::bf16, DType::f32}}}), "kernels 'two' (/two.so)");
      }),
      AllOf(HasSubstr("kernels 'one' (/one.so)"), HasSubstr("kernels 'two' (/two.so)"),
            HasSubstr("op 'twist' of f32 on device 'cpu'")));
  EXPECT_EQ(make(sets, "cpu", "turn", DType::f32), nullptr) << "a set that was refused has left nothing";
  EXPECT_THROW(sets.add(set_of({{"cpu", "bow", {DType::f32, DType::f32}}}), "kernels 'three' (/three.so)"), UsageError);
  sets.add(set_of({{"cuda", "twist", {DType::f32}}}), "kernels 'four' (/four.so)");
}

TEST(KernelSets, WhatTheirKernelsThrowNamesThePlugin) {
  KernelSets sets;
  sets.add(set_of({{"cpu", "twist", {DType::f32}}}), "kernels 'one' (/one.so)");
  const std::unique_ptr<Kernel> kernel = make(sets, "cpu", "twist", DType::f32);
  EXPECT_THAT(message_of<Error>([&] { kernel->launch({}, {}, nullptr, nullptr); }),
              AllOf(HasSubstr("kernels 'one'"), HasSubstr("row 17")));
  EXPECT_THAT(message_of<Error>([] { set_of({})->keys(); }), AllOf(HasSubstr("kernels 'one'"), HasSubstr("keys() is empty")));
}

}  // namespace
}  // namespace consist
