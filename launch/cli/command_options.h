// What consist generate and consist evaluate take, their own options and train's: for the commands, completion and man pages.
#pragma once

#include <string_view>

#include "core/config/option_table.h"
#include "launch/cli/own_options.h"

namespace consist::launch {

inline constexpr RunOption prompt_option{
    .spec = {"prompt", OptionKind::text, "", "the text to go on from"}, .value = "TEXT", .group = OptionGroup::training};
inline constexpr RunOption prompt_file_option{
    .spec = {"prompt-file", OptionKind::text, "", "the same from a file, - is standard input; a newline at its end is left out"},
    .value = "FILE",
    .group = OptionGroup::training};
inline constexpr RunOption prompt_ids_option{
    .spec = {"prompt-ids", OptionKind::text, "", "the same as tokens: 1,15,7; no tokenizer is needed"},
    .value = "IDS",
    .group = OptionGroup::training};
inline constexpr RunOption chat_option{
    .spec = {"chat", OptionKind::flag, "false", "the prompt is what a user says, and the chat template is written around it"},
    .group = OptionGroup::training};
inline constexpr RunOption max_tokens_option{
    .spec = {"max-tokens", OptionKind::integer, "256", "tokens to write at most", "1..1000000000"},
    .value = "N",
    .group = OptionGroup::training};
inline constexpr RunOption temperature_option{
    .spec = {"temperature", OptionKind::real, "1", "logits are divided by it; 0: always the most probable token", "0..1000"},
    .value = "X",
    .group = OptionGroup::training};
inline constexpr RunOption top_k_option{
    .spec = {"top-k", OptionKind::integer, "0", "only the so many most probable tokens; 0: all", "0..1000000000"},
    .value = "N",
    .group = OptionGroup::training};
inline constexpr RunOption top_p_option{
    .spec = {"top-p", OptionKind::real, "1", "only the most probable tokens that reach this probability together", "0..1"},
    .value = "X",
    .group = OptionGroup::training};
inline constexpr RunOption ignore_eos_option{
    .spec = {"ignore-eos", OptionKind::flag, "false", "do not stop at the token that ends a text"},
    .group = OptionGroup::training};
inline constexpr RunOption tokenizer_option{
    .spec = {"tokenizer", OptionKind::text, "", "a tokenizer.json, or a folder with one; else the model's"}, .value = "FILE"};
inline constexpr RunOption json_option{
    .spec = {"json", OptionKind::text, "", "tokens, text and times as a file"}, .value = "FILE", .group = OptionGroup::results};

inline constexpr RunOption options_of_generate[] = {prompt_option,     prompt_file_option, prompt_ids_option, chat_option,
                                                    max_tokens_option, temperature_option, top_k_option,      top_p_option,
                                                    ignore_eos_option, tokenizer_option,   json_option,       help_option};
inline constexpr std::string_view taken_by_generate[] = {"model",  "checkpoint",   "precision", "device",   "seed",
                                                         "plugin", "memory-limit", "optimizer", "overwrite"};

inline constexpr RunOption options_of_evaluate[] = {
    help_option,
    {.spec = {"json", OptionKind::text, "", "the result as a file"}, .value = "FILE", .group = OptionGroup::results},
};
inline constexpr std::string_view taken_by_evaluate[] = {"model",        "checkpoint",
                                                         "config",       "strategy",
                                                         "transport",    "precision",
                                                         "device",       "machine",
                                                         "dataset",      "ranks",
                                                         "plugin",       "sequence",
                                                         "batch",        "seed",
                                                         "timeout",      "evaluate-sequences",
                                                         "memory-limit", "host-memory-limit",
                                                         "archive",      "overwrite",
                                                         "optimizer"};

}  // namespace consist::launch
