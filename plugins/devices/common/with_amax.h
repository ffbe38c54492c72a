// Kernels of the ops "<op>_amax" (core/ops/amax.cpp) from those of op and amax, one behind the other.
#pragma once

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "plugins/devices/common/makers.h"

namespace consist::kernels {

/// The outputs whose amax a request is for, as attribute "amax_of" says.
inline std::vector<std::size_t> amax_outputs(const KernelRequest& r) {
  const auto of = static_cast<std::uint64_t>(r.attributes.integer("amax_of"));
  std::vector<std::size_t> outputs;
  for (std::size_t k = 0; k < 64; ++k) {
    if ((of >> k & 1) != 0) outputs.push_back(k);
  }
  return outputs;
}

class WithAmax final : public Kernel {
 public:
  /// A kernel for op "<op>_amax". Null where the device makes none for op, or for amax.
  template <typename Settings>
  static Made make(const KernelRequest& r, const Settings& s) {
    using Kernels = Registered<Settings>;
    auto made = std::make_unique<WithAmax>();
    made->of_ = amax_outputs(r);
    made->own_ = r.outputs.size() - made->of_.size();
    KernelRequest own = r;
    own.op = r.op.substr(0, r.op.rfind("_amax"));
    own.outputs = r.outputs.first(made->own_);
    made->base_ = Kernels::make(own, s);
    if (!made->base_) return nullptr;
    for (std::size_t j = 0; j < made->of_.size(); ++j) {
      made->amax_.push_back(
          Kernels::make({"amax", r.outputs.subspan(made->of_[j], 1), r.outputs.subspan(made->own_ + j, 1), r.attributes}, s));
      if (!made->amax_.back()) return nullptr;
    }
    return made;
  }

  std::int64_t workspace_bytes() const override {
    std::int64_t bytes = base_->workspace_bytes();
    for (const Made& amax : amax_) bytes = std::max(bytes, amax->workspace_bytes());
    return bytes;
  }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    base_->launch(in, out.first(own_), workspace, queue);
    for (std::size_t j = 0; j < of_.size(); ++j)
      amax_[j]->launch(out.subspan(of_[j], 1), out.subspan(own_ + j, 1), workspace, queue);
  }
  void check() override { base_->check(); }

 private:
  std::vector<std::size_t> of_;
  std::size_t own_ = 0;
  Made base_;
  std::vector<Made> amax_;
};

}  // namespace consist::kernels
