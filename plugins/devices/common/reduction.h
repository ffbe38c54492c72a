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
    const std::vector<Reads> reads = reads_of_inputs(f);
    for (std::size_t k = 0; k < reads.size(); ++k) {
      if (reads[k] == Reads::same) columns = r.inputs[k].shape.last();
    }
  }
};

}  // namespace consist::kernels
