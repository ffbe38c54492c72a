// reduce and total: the expression, and the rows that it reads, on every device.
#pragma once

#include "consist/expression.h"
#include "plugins/devices/common/map_update.h"

namespace consist::kernels {

enum class ReduceBy : std::uint8_t { sum, largest, logsumexp };

struct Reduction {
  Expressions f;
  std::int64_t columns;  ///< of a row of the rank's; all elements are one row of a total
  ReduceBy by = ReduceBy::sum;

  explicit Reduction(const KernelRequest& r)
      : f(Expressions::parse(r.attributes.string("f"))), columns(r.attributes.integer_or("columns", 0)) {
    const bool total = !r.attributes.has("by");
    if (!total && r.attributes.string("by") != "sum")
      by = r.attributes.string("by") == "max" ? ReduceBy::largest : ReduceBy::logsumexp;
    const int whole = f.first_read(Reads::same);
    if (whole < 0) return;
    const Shape& shape = at(r.inputs, static_cast<std::size_t>(whole)).shape;
    columns = total ? shape.elements() : shape.last();
  }
};

}  // namespace consist::kernels
