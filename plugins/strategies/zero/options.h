// Reading the options that count elements.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "consist/options.h"

namespace consist::zero {

/// A count of elements as DeepSpeed's files write it ("5e7"), which must be whole and at least `least`. Throws UsageError naming
/// --<strategy>.<name>.
std::int64_t elements(const Options& options, const char* strategy, std::string_view name, std::int64_t least);

}  // namespace consist::zero
