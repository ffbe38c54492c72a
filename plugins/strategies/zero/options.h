// Reading the options that the stages share. Names and meanings are DeepSpeed's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "consist/options.h"
#include "plugins/strategies/zero/settings.h"

namespace consist::zero {

/// A count of elements as DeepSpeed's files write it ("5e7"), which must be whole and at least `least`. Throws UsageError naming
/// --<strategy>.<name>.
std::int64_t elements(const Options& options, const char* strategy, std::string_view name, std::int64_t least);

/// True if `what` ("offload-param") is to lie in the host's memory. Throws UsageError.
bool offloads(const Options& options, const char* strategy, const std::string& what);

/// overlap-comm, contiguous-gradients, reduce-bucket-size, communication-data-type, and those of offload-optimizer with
/// sub-group-size. Throws UsageError.
void read_shared(const Options& options, Settings& settings);

}  // namespace consist::zero

// clang-format off
/// The rows of read_shared() in a plugin's table of options.
#define CONSIST_ZERO_SHARED_OPTIONS                                                                                                        \
  {"overlap-comm", consist::OptionKind::flag, "true", "communication runs beside computation"},                                           \
  {"contiguous-gradients", consist::OptionKind::flag, "true", "gradients of a reduce_scatter lie side by side"},                          \
  {"reduce-bucket-size", consist::OptionKind::real, "5e7",                                                                                \
   "gradients per reduce_scatter, in elements; 0: each by itself", "", "", "2e7|5e7|2e8"},                                                                       \
  {"communication-data-type", consist::OptionKind::choice, "auto",                                                                        \
   "of gradients on their way between ranks; auto: as the precision makes them", "auto|fp32|bf16"},                                       \
  {"sub-group-size", consist::OptionKind::real, "1e8",                                                                                    \
   "of a rank's elements that are updated at a time with offload; 0: each parameter by itself", "", "offload-optimizer.device=cpu"},      \
  {"offload-optimizer.device", consist::OptionKind::choice, "none", "where masters and moments lie: none is the device", "none|cpu", "", "none|cpu"},     \
  {"offload-optimizer.pin-memory", consist::OptionKind::flag, "true", "the host's memory is pinned, always", "",                         \
   "offload-optimizer.device=cpu"},                                                                                                        \
  {"offload-optimizer.ratio", consist::OptionKind::real, "1", "of the optimizer states, by elements, that are offloaded", "",            \
   "offload-optimizer.device=cpu"},                                                                                                        \
  {"offload-optimizer.update", consist::OptionKind::choice, "auto",                                                                       \
   "where offloaded states are updated: streamed through the device, or on the cpu", "auto|device|cpu",                         \
   "offload-optimizer.device=cpu"}
// clang-format on
