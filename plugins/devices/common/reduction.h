// reduce: its expression, and the rows that it reads, on every device.
#pragma once

#include "consist/expression.h"
#include "plugins/devices/common/map_update.h"

namespace consist::kernels {

struct Reduction {
  Expressions f;
  std::int64_t columns;  ///< of a row of the rank's
  bool largest;          ///< instead of the sum

  explicit Reduction(const KernelRequest& r)
      : f(Expressions::parse(r.attributes.string("f"))),
        columns(r.attributes.integer_or("columns", 0)),
        largest(r.attributes.string("by") == "max") {
    if (const int whole = f.first_read(Reads::same); whole >= 0)
      columns = at(r.inputs, static_cast<std::size_t>(whole)).shape.last();
  }
};

}  // namespace consist::kernels
