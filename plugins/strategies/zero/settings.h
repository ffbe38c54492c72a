// Settings of the stages of ZeRO (Rajbhandari et al., 2020, "ZeRO: Memory Optimizations Toward Training
// Trillion Parameter Models"). Sizes are in elements, as DeepSpeed counts them.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "consist/dtype.h"

namespace consist::zero {

inline constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max() / 4;

struct Settings {
  const char* strategy = "";  ///< for tags; a string literal
  bool reduce_each = true;    ///< gradients are reduced after each micro-batch; false: added unsharded and reduced once per step
  std::optional<DType> reduce_dtype;        ///< of gradients in flight between ranks; absent: as they are made
  bool overlap = true;                      ///< collectives run beside other work; false: each is waited for where it stands
  bool contiguous_gradients = true;         ///< gradients of a bucket lie side by side
  std::int64_t reduce_bucket = 50'000'000;  ///< gradients per reduce_scatter
  std::int64_t gather_bucket = 50'000'000;  ///< parameters per all_gather, and how far gathers run ahead of use in stage 3
  std::int64_t persistence = unlimited;     ///< parameters of fewer elements are gathered once per step and kept
  std::int64_t max_live = unlimited;        ///< parameters that are gathered at one time, without those that are kept
  bool offload_param = false;               ///< parameters of at least `persistence` elements lie in the host's memory
  bool offload_optimizer = false;           ///< masters and moments do
  double offload_ratio = 1;                 ///< of the optimizer states, by elements
  bool update_on_host = false;              ///< where states lie on the host: else they are streamed through the device
  std::int64_t sub_group = 100'000'000;     ///< of a rank's elements, updated at a time
  std::int64_t max_reuse_distance = 0;      ///< a parameter is kept if at most so many others are used before it is used again
};

}  // namespace consist::zero
