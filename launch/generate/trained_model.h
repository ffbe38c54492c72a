// Options by which generate and evaluate name a trained model: a Hugging Face folder, or a run's checkpoints.
#pragma once

#include <string>
#include <vector>

#include "launch/cli/run_options.h"

namespace consist::launch {

/// With --checkpoint FOLDER: adds what the run that wrote the newest checkpoint said of its model, optimizer, precision, dataset
/// and shape of batches, as far as the command line does not say it. Throws UsageError if there is no checkpoint in the folder,
/// and for a model folder that is gone; DataError for one that is damaged. `parts`: others of the run that the command takes,
/// such as "loss".
void add_options_of_checkpoint(ParsedRun& parsed, std::vector<std::string> parts = {});

}  // namespace consist::launch
