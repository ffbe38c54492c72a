// Options by which generate and evaluate name a trained model: a Hugging Face folder, or a run's checkpoints.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/config/option_table.h"
#include "launch/cli/run_options.h"

namespace consist::launch {

/// Throws UsageError for an option of the command line that is neither among `taken` (names of run_option_table()) nor one of
/// `own`, nor of a part: `command` would ignore it.
void refuse_others(const ParsedRun& parsed, std::span<const std::string_view> taken, std::span<const RunOption> own,
                   const std::string& command);

/// With --checkpoint FOLDER: adds what the run that wrote the newest checkpoint said of its model, optimizer, precision, dataset and shape
/// of batches, as far as the command line does not say it. Throws UsageError if there is no checkpoint in the folder, and for a
/// model folder that is gone; DataError for one that is damaged.
void add_options_of_checkpoint(ParsedRun& parsed, std::span<const RunOption> own);

}  // namespace consist::launch
