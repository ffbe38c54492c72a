// split and concat: where the parts of heads lie, on every device.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "consist/head_parts.h"
#include "plugins/devices/common/makers.h"

namespace consist::kernels {

/// In elements: (row, head, channel) lies at row * row_stride + head * head_stride + channel. A part that all heads share has
/// head_stride 0; `data` is null if it is absent.
struct PlacedPart {
  char* data = nullptr;
  std::int64_t row_stride = 0, head_stride = 0, width = 0, first = 0;  ///< `first`: its first channel of a head of the whole
  bool shared = false;
};

struct PlacedParts {
  std::array<PlacedPart, HeadParts::max_parts> parts{};
  std::size_t count = 0;
  char* whole = nullptr;
  std::int64_t rows = 0, heads = 0, head_dim = 0, whole_stride = 0;

  PlacedParts(const HeadParts& stated, const Buffer& of_whole, std::span<const Buffer> of_parts)
      : count(stated.all().size()),
        whole(of_whole.as<char>()),
        rows(of_whole.shape.rows()),
        heads(of_whole.shape.last() / stated.head_dim()),
        head_dim(stated.head_dim()),
        whole_stride(of_whole.leading_dimension()) {
    for (std::size_t k = 0; k < count; ++k) {
      const HeadPart& part = stated.all()[k];
      const Buffer& buffer = at(of_parts, k);
      parts[k] = {buffer.absent() ? nullptr : buffer.as<char>(),
                  buffer.leading_dimension(),
                  part.shared ? 0 : part.width,
                  part.width,
                  part.first,
                  part.shared};
    }
  }
};

}  // namespace consist::kernels
