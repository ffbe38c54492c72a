#include "launch/import/trainer_file.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/json_input.h"
#include "consist/text.h"
#include "core/config/config_file.h"
#include "launch/import/accelerate_config.h"
#include "launch/import/common/key_reader.h"
#include "launch/import/common/yaml.h"
#include "launch/import/deepspeed_config.h"
#include "launch/import/megatron_config.h"
#include "launch/import/megatron_script.h"
#include "launch/import/torchtitan_config.h"

namespace consist {
namespace {

using readers::Json;
using readers::Source;
using readers::Target;

constexpr std::int64_t most_bytes = std::int64_t{1} << 20;

enum class Syntax { json, toml, yaml, script, python, unknown };

/// Guesses the syntax from the first lines that are no comments.
Syntax syntax_of(const std::string& text) {
  std::istringstream lines(text);
  bool mapping = false, first = true;
  if (text.starts_with("#!"))
    return text.substr(0, text.find('\n')).find("python") != std::string::npos ? Syntax::python : Syntax::script;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos) continue;
    const std::string_view rest = std::string_view(line).substr(begin);
    if (rest.starts_with('#') || rest.starts_with("//") || rest.starts_with("\"\"\"") || rest.starts_with("/*")) continue;
    if (first && rest.starts_with('{')) return Syntax::json;
    if (first && rest.starts_with("--") && !rest.starts_with("---")) return Syntax::script;
    first = false;
    if (rest.starts_with("import ") || rest.starts_with("from ") || rest.starts_with("def ") || rest.starts_with("class "))
      return Syntax::python;
    if (rest.starts_with("export ") || rest.starts_with("torchrun ") || rest.starts_with("python ")) return Syntax::script;
    if (!mapping && rest.find(".py ") != std::string_view::npos && rest.find(" --") != std::string_view::npos)
      return Syntax::script;
    if (begin == 0 && rest.starts_with('[')) return Syntax::toml;
    const std::size_t name = rest.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-");
    if (name == std::string_view::npos || name == 0) continue;
    if (rest[name] == '=' || rest.substr(name).starts_with("+=")) return Syntax::script;
    if (rest[name] == ':') mapping = true;
    if (!mapping && rest.substr(name).starts_with(" = ")) return Syntax::toml;
    if (mapping) return Syntax::yaml;
  }
  return Syntax::unknown;
}

constexpr const char* what_is_read =
    "a torchtitan TOML, a script or file of Megatron-LM's arguments, an Accelerate YAML, or a DeepSpeed JSON (docs/readers.md)";

Source source_of(const std::string& path, const char* format, const char* trainer, const char* example) {
  return {.option = "--from",
          .set_option = "--from-set",
          .format = format,
          .path = path,
          .example = example,
          .trainer = trainer,
          .command_line_first = true};
}

bool is_deepspeed(const Json& root) {
  constexpr std::array keys{"zero_optimization",
                            "train_batch_size",
                            "train_micro_batch_size_per_gpu",
                            "gradient_accumulation_steps",
                            "optimizer",
                            "bf16",
                            "fp16",
                            "gradient_clipping"};
  for (const char* key : keys) {
    if (root.contains(key)) return true;
  }
  return root.empty();
}

/// True if these are Hugging Face's TrainingArguments, which share names with DeepSpeed's keys.
bool is_training_arguments(const Json& root) {
  if (root.contains("zero_optimization")) return false;
  constexpr std::array keys{"per_device_train_batch_size", "output_dir", "num_train_epochs", "logging_steps",
                            "lr_scheduler_type"};
  return std::any_of(keys.begin(), keys.end(), [&](const char* key) { return root.contains(key); });
}

Json tree_of(const std::string& text, Syntax syntax, const std::string& path) {
  const std::string name = "--from " + path;
  if (syntax == Syntax::json) return parse_json(text, name, {.repeated = JsonRules::Repeated::refused, .comments = true});
  if (syntax == Syntax::toml) return parse_toml(text, name);
  return readers::parse_yaml(text, name);
}

}  // namespace

std::set<std::string> apply_trainer_file(const std::string& path, const readers::ReaderContext& context, RunConfig& config) {
  const std::string text = read_text(path, most_bytes);
  const Syntax syntax = path.ends_with(".py") ? Syntax::python : syntax_of(text);
  const auto refuse = [&](const std::string& why) -> UsageError {
    return UsageError("--from " + path + why + "; it may be " + what_is_read);
  };
  if (syntax == Syntax::python)
    throw UsageError("--from " + path +
                     " is Python code, which is not run here. Give its values as options, or write them into a TOML of "
                     "torchtitan's layout before February 2026 ([model], [training], [parallelism], ...; docs/readers.md)");
  if (syntax == Syntax::unknown) throw refuse(" is of no format that is read here");
  const auto read = [&](Json root, const Source& source, void (*apply)(Json, Target&)) {
    if (!root.is_object()) throw DataError("--from " + path + " holds no table of keys");
    Target target(source, context, config);
    readers::replace_values(context.replacements, root, target);
    apply(std::move(root), target);
    target.summarize();
    return target.stated;
  };
  const Source of_megatron = source_of(path, "megatron", "Megatron-LM", "num-layers=4");
  if (syntax == Syntax::script)
    return read(megatron::arguments_of_script(text, "--from " + path, config.notes), of_megatron, megatron::apply);
  Json root = tree_of(text, syntax, path);
  if (!root.is_object()) throw DataError("--from " + path + " holds no table of keys");
  if (accelerate::is_config(root))
    return read(std::move(root), source_of(path, "accelerate", "Accelerate", "fsdp_config.fsdp_offload_params=true"),
                accelerate::apply);
  if (torchtitan::is_config(root))
    return read(std::move(root), source_of(path, "torchtitan", "torchtitan", "parallelism.tensor_parallel_degree=2"),
                torchtitan::apply);
  if (megatron::is_tree(root)) return read(megatron::arguments_of_tree(root, "--from " + path), of_megatron, megatron::apply);
  if (is_training_arguments(root))
    throw refuse(
        " holds Hugging Face's TrainingArguments, which are not read: give its values as options, and the file that its "
        "key \"deepspeed\" names as --deepspeed-config");
  if (syntax == Syntax::json && is_deepspeed(root))
    return read(std::move(root), source_of(path, "deepspeed", "DeepSpeed", "zero_optimization.sub_group_size=1e9"),
                deepspeed::apply);
  throw refuse(" has keys of no format that is read here (the first is " + in_quotes(root.empty() ? "" : root.begin().key()) +
               ")");
}

}  // namespace consist
