// split_channels and merge_channels: how their rows lie, on every device.
#pragma once

#include "plugins/devices/common/makers.h"

namespace consist::kernels {

/// Rows of `wide` [batch, sequence, channels], columns of which are the dense `parts` [parts, batch, sequence, width]. Bytes.
struct ChannelParts {
  std::int64_t parts, rows, width, stride;  ///< width: of a row of a part; stride: from row to row of the wide tensor
  ChannelParts(const Buffer& wide, const Buffer& parts_of_it)
      : parts(parts_of_it.shape[0]),
        rows(wide.shape.rows()),
        width(parts_of_it.shape[3] * static_cast<std::int64_t>(size_of(wide.dtype))),
        stride(wide.leading_dimension() * static_cast<std::int64_t>(size_of(wide.dtype))) {}
};

}  // namespace consist::kernels
