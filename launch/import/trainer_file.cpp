#include "launch/import/trainer_file.h"

#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/json_input.h"
#include "launch/import/common/key_reader.h"
#include "launch/import/common/yaml.h"
#include "launch/import/megatron_config.h"
#include "launch/import/megatron_script.h"

namespace consist {
namespace {

using readers::Json;
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

Json tree_of(const std::string& text, Syntax syntax, const std::string& path) {
  const std::string name = "--from " + path;
  if (syntax == Syntax::json) return parse_json(text, name, {.repeated = JsonRules::Repeated::refused, .comments = true});
  return readers::parse_yaml(text, name);
}

}  // namespace

std::optional<std::set<std::string>> apply_megatron_file(const std::string& path, const readers::ReaderContext& context,
                                                         RunConfig& config) {
  std::string text;
  try {
    text = read_text(path, most_bytes);
  } catch (const Error&) {
    return std::nullopt;  // whose reader says why
  }
  const Syntax syntax = path.ends_with(".py") ? Syntax::python : syntax_of(text);
  Json root;
  if (syntax == Syntax::script) {
    root = megatron::arguments_of_script(text, "--from " + path, config.notes);
  } else if (syntax == Syntax::json || syntax == Syntax::yaml) {
    try {
      root = tree_of(text, syntax, path);
    } catch (const DataError&) {
      return std::nullopt;
    }
    const auto is_other = [&](const char* key) { return root.contains(key); };
    if (!root.is_object() || is_other("distributed_type") || is_other("compute_environment") || !megatron::is_tree(root))
      return std::nullopt;
    root = megatron::arguments_of_tree(root, "--from " + path);
  } else {
    return std::nullopt;
  }
  if (!root.is_object()) throw DataError("--from " + path + " holds no table of keys");
  Target target({.option = "--from",
                 .set_option = "--from-set",
                 .format = "megatron",
                 .path = path,
                 .example = "num-layers=4",
                 .trainer = "Megatron-LM",
                 .command_line_first = true},
                context, config);
  readers::replace_values(context.replacements, root, target);
  megatron::apply(std::move(root), target);
  target.summarize();
  return target.stated;
}

}  // namespace consist
