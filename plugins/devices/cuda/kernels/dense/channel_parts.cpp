// split_channels and merge_channels: a copy of columns for each part.
#include "plugins/devices/common/channel_parts.h"

#include "plugins/devices/cuda/kernels/common/kernels.h"
#include "plugins/devices/cuda/kernels/common/launch.h"

namespace consist::cuda {
namespace {

class ChannelParts final : public Kernel {
 public:
  ChannelParts(const Buffer& wide, const Buffer& parts, bool splits) : parts_(wide, parts), splits_(splits) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    if (parts_.rows == 0 || parts_.width == 0) return;
    const auto width = static_cast<std::size_t>(parts_.width), stride = static_cast<std::size_t>(parts_.stride),
               rows = static_cast<std::size_t>(parts_.rows);
    for (std::int64_t part = 0; part < parts_.parts; ++part) {
      char* const column = (splits_ ? in : out)[0].as<char>() + part * parts_.width;
      char* const dense = (splits_ ? out : in)[0].as<char>() + part * parts_.rows * parts_.width;
      cuda::check(cudaMemcpy2DAsync(splits_ ? dense : column, splits_ ? width : stride, splits_ ? column : dense,
                                    splits_ ? stride : width, width, rows, cudaMemcpyDeviceToDevice, stream_of(queue)),
                  "copy columns of channels");
    }
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

}  // namespace consist::cuda
