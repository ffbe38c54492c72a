// Brings a model of the hub (--model hf://ORG/NAME) into the cache of this machine, by Python's huggingface_hub.
#pragma once

#include <string>

namespace consist::launch {

/// Downloads what --model lacks here: config.json and the tokenizer, and, if asked for, the weights. Its progress goes to standard
/// error. Does nothing for other models, for what is there, where HF_HUB_OFFLINE is set, and where there is no Python
/// ($CONSIST_PYTHON, else python3) with huggingface_hub: select_parts() then says what to download. Throws UsageError if the
/// download fails, SystemError if it takes longer than ten minutes, or a day with weights.
void bring_hub_model(const std::string& model, bool with_weights);

}  // namespace consist::launch
