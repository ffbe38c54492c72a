// split_channels and merge_channels: copies of rows.
#include "plugins/devices/common/channel_parts.h"

#include <cstring>

#include "plugins/devices/cpu/kernels/common/kernels.h"
#include "plugins/devices/cpu/kernels/common/parallel.h"

namespace consist::cpu {
namespace {

class ChannelParts final : public Kernel {
 public:
  ChannelParts(const Buffer& wide, const Buffer& parts, bool splits) : parts_(wide, parts), splits_(splits) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    char* const wide = (splits_ ? in : out)[0].as<char>();
    char* const parts = (splits_ ? out : in)[0].as<char>();
    const kernels::ChannelParts p = parts_;
    const bool splits = splits_;
    parallel_for(p.parts * p.rows, [=](std::int64_t i) {
      char* const column = wide + i % p.rows * p.stride + i / p.rows * p.width;
      char* const row = parts + i * p.width;
      std::memcpy(splits ? row : column, splits ? column : row, static_cast<std::size_t>(p.width));
    });
  }

 private:
  kernels::ChannelParts parts_;
  bool splits_;
};

Made make_split_channels(const KernelRequest& r, const KernelSettings& /*s*/) {
  return std::make_unique<ChannelParts>(r.inputs[0], r.outputs[0], true);
}
Made make_merge_channels(const KernelRequest& r, const KernelSettings& /*s*/) {
  return std::make_unique<ChannelParts>(r.outputs[0], r.inputs[0], false);
}

}  // namespace

CONSIST_KERNEL(split_channels, make_split_channels);
CONSIST_KERNEL(merge_channels, make_merge_channels);

}  // namespace consist::cpu
