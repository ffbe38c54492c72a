// Helpers that the suites of kernels, of their ops' gradients and of their ops' placements share.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "consist/kernel_registry.h"
#include "tests/conformance/parts/operands.h"
#include "tests/conformance/parts/parts.h"
#include "tests/conformance/parts/trial.h"

namespace consist::testing {

/// A set of kernels, its examples, and the device that it is for.
class KernelSuite : public ::testing::TestWithParam<Candidate> {
 protected:
  void SetUp() override {
    set_ = host().make<KernelSet>("kernels", GetParam().name, GetParam().options);
    device_kind_ = set_->keys().front().device;
  }

  /// Opens device(). Empty, or why the device cannot work here.
  std::string open_device();
  Device& device() { return *device_; }

  /// The examples whose op is there: of a set for another device than cpu it may lie in another plugin.
  std::vector<KernelExample> examples() const;
  /// Numbers that the example's op takes: those of both signs, unless it makes something that is not finite of them.
  Numbers numbers_for(const KernelExample& example);
  /// The example's instruction, ready to be launched with the set's own kernel; throws if there is none.
  Trial trial_of(const KernelExample& example);

  std::shared_ptr<KernelSet> set_;
  std::string device_kind_;

 private:
  std::shared_ptr<Device> device_;
};

bool all_finite(const Operands& operands);

}  // namespace consist::testing
