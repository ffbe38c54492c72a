// A flat slice of a matrix: an equal range of its elements, as ZeRO's ranks have it. Expressions read it beside the whole
// matrix's vectors of rows and channels.
#pragma once

#include <cstdint>

#include "consist/expression.h"
#include "plugins/devices/common/makers.h"

namespace consist::kernels {

struct FlatSlice {
  std::int64_t width = 0;  ///< channels of the matrix; 0: the elements are no such slice, but rows of their own
  std::int64_t first = 0;  ///< element of the matrix with which the slice begins

  explicit operator bool() const noexcept { return width != 0; }

  /// The slice of a matrix of `width` channels, if the elements that f reads as they are do not lie in rows.
  static FlatSlice of_width(std::int64_t width, const Expressions& f, const KernelRequest& r) {
    const auto whole = static_cast<std::size_t>(f.first_read(Reads::same));
    if (r.inputs[whole].shape.rank() != 1) return {};
    return {width, r.input_origins.empty() ? 0 : r.input_origins[whole][0]};
  }
  /// The slice of a matrix, if f reads a vector of its channels, which states how many there are.
  static FlatSlice of(const Expressions& f, const KernelRequest& r) {
    const int whole = f.first_read(Reads::same), channel = f.first_read(Reads::channel), row = f.first_read(Reads::row);
    if (whole < 0 || channel < 0) return {};
    const std::int64_t elements = r.inputs[static_cast<std::size_t>(whole)].shape.elements(),
                       width = r.inputs[static_cast<std::size_t>(channel)].shape.elements();
    // A vector has as many channels as elements, and one row. A slice that is as long ends where a row does: it reads the same.
    const bool is_one_row = row < 0 || r.inputs[static_cast<std::size_t>(row)].shape.elements() == 1;
    return elements == width && is_one_row ? FlatSlice{} : of_width(width, f, r);
  }
};

}  // namespace consist::kernels
