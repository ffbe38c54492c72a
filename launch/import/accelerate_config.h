// Accelerate's YAML: FSDP 1 and 2, its parallelism_config, and its plugins of DeepSpeed and Megatron-LM.
#pragma once

#include "launch/import/common/target.h"

namespace consist::accelerate {

/// True if a tree has the keys of such a file.
bool is_config(const readers::Json& root);

/// Sets in target.config what the file states: strategies, ranks, precision, recomputation. Model, batch, optimizer and learning rate
/// are the program's, so the command line's. A file that deepspeed_config_file names is read by the reader of DeepSpeed's files; it
/// lies beside this one unless its path is whole. Throws UsageError for what is not done here.
void apply(readers::Json root, readers::Target& target);

}  // namespace consist::accelerate
