// PyTorch's FSDP as the strategy zero3-offload, for the files of trainers that use it.
#pragma once

#include <string>

#include "launch/import/common/target.h"

namespace consist::readers {

struct FsdpSettings {
  bool offload = false;               ///< parameters and states on the host, where they are updated
  bool whole_until_backward = false;  ///< parameters are not given up after forward (SHARD_GRAD_OP)
  std::string reduce_dtype;           ///< of gradients on their way: "fp32", "bf16"
};

/// Sets the options of zero3-offload, with a note for each.
void derive_fsdp(const FsdpSettings& settings, Target& target);

}  // namespace consist::readers
