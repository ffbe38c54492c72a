// Turns a model's tokens into text: its tokenizer, and the tokens with which it ends a text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "core/plan/parts.h"
#include "core/training/samples.h"
#include "datasets/tokenizer/tokenizer.h"

namespace consist::launch {

struct ModelText {
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  std::string file;                ///< the tokenizer.json
  std::vector<std::int32_t> ends;  ///< none: nothing ends a text
};

/// The tokenizer.json that `asked` names (a file, or a folder with one); if that is empty, the one that the dataset says of the
/// run that trained the weights (`run`, null where no run is known); else the one of the model's folder. Ends are the
/// eos_token_id of the folder's generation_config.json, else of the model's config.json, else the token that divides documents.
/// Throws UsageError where there is no tokenizer, DataError for a file that is damaged.
ModelText find_model_text(const RunConfig& config, const Parts& parts, const Dataset* run, const std::string& asked);

/// `text` as a user's message in the chat template of the dataset that `run` is of (null: not known), else in the one beside the
/// tokenizer, up to where the answer begins. What ends an answer there is added to `of.ends`. Throws UsageError where there is no
/// chat template.
std::vector<std::int32_t> chat_prompt(ModelText& of, const Dataset* run, const std::string& text);

/// The samples that --sample-every, --sample-prompt and --sample-tokens request; nothing without the first. Throws UsageError
/// where there is no prompt, and as find_model_text().
std::optional<SampleRequest> sample_request(const RunConfig& config, const Parts& parts, PluginHost& host);

/// The dataset of the run that wrote --checkpoint, not opened: null without --checkpoint.
std::shared_ptr<Dataset> dataset_of_checkpoint(RunConfig config, const Parts& parts, PluginHost& host);

/// The ends alone, where there is no tokenizer.
std::vector<std::int32_t> ends_of(const Parts& parts);

}  // namespace consist::launch
