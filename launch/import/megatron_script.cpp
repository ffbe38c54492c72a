#include "launch/import/megatron_script.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "consist/error.h"
#include "consist/json_input.h"
#include "consist/text.h"
#include "launch/import/shell_script.h"

namespace consist::megatron {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

constexpr int most_scripts = 4;  // one within the other, in quotes

bool is_option(const std::string& word) {
  return word.starts_with("--") && word.find_first_not_of('-') != std::string::npos;
}

/// "--num_layers" as "num-layers".
std::string key_of(const std::string& option) {
  std::string key = option.substr(std::min(option.find_first_not_of('-'), option.size()));
  std::replace(key.begin(), key.end(), '_', '-');
  return key;
}

/// As argparse takes them: the last of several counts.
Json arguments_of(const Words& words, std::size_t begin, std::size_t end) {
  Json all = Json::object();
  for (std::size_t n = begin; n < end;) {
    if (!is_option(words[n])) {
      ++n;
      continue;
    }
    const std::size_t equals = words[n].find('=');
    const std::string key = key_of(words[n].substr(0, equals));
    Words values;
    if (equals != std::string::npos) values.push_back(words[n].substr(equals + 1));
    for (++n; n < end && !is_option(words[n]) && words[n] != "\\"; ++n) values.push_back(words[n]);
    Json& value = all[key];
    if (values.empty()) {
      value = true;
    } else if (values.size() == 1) {
      value = values.front();
    } else {
      value = values;
    }
  }
  return all;
}

bool trains(const Json& arguments) {
  for (const char* key : {"num-layers", "micro-batch-size", "tensor-model-parallel-size", "hidden-size", "seq-length"}) {
    if (arguments.contains(key)) return true;
  }
  return false;
}

/// The words of the first command that starts a *.py with such arguments.
class Finder {
 public:
  Finder(shell::Script& script) : script_(script) {}

  void look_at(const Words& words, int depth = 0) {
    if (found_) return;
    const auto program = std::find_if(words.begin(), words.end(), [](const std::string& w) { return w.ends_with(".py"); });
    if (program != words.end()) {
      const auto at = static_cast<std::size_t>(program - words.begin());
      Json arguments = arguments_of(words, at + 1, words.size());
      if (trains(arguments)) {
        arguments["torchrun"] = arguments_of(words, 0, at);
        found_ = std::move(arguments);
        return;
      }
    }
    if (depth == most_scripts) return;
    for (const std::string& word : words) {  // srun sh -c "..."
      if (word.find(".py ") == std::string::npos || word.find(" --") == std::string::npos) continue;
      script_.follow(word, [&](const Words& inner) { look_at(inner, depth + 1); });
    }
  }
  std::optional<Json> take() { return std::move(found_); }

 private:
  shell::Script& script_;
  std::optional<Json> found_;
};

void add_tree(const Json& object, Json& all, const std::string& name, int depth) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_object()) {
      if (depth > 4) throw DataError(name + ": " + in_quotes(key) + " lies too deep for arguments of Megatron-LM");
      add_tree(value, all, name, depth + 1);
      continue;
    }
    if (value == false || value.is_null()) continue;  // how such files leave an argument out
    all[key_of(key)] = value;
  }
}

}  // namespace

Json arguments_of_script(const std::string& text, const std::string& name, std::vector<std::string>& notes) {
  shell::Script script(name, [&](const std::string& note) { notes.push_back("megatron " + note); });
  Finder finder(script);
  Words others;
  script.follow(text, [&](const Words& words) {
    finder.look_at(words);
    if (is_option(words.front())) others.insert(others.end(), words.begin(), words.end());
  });
  if (std::optional<Json> found = finder.take()) return std::move(*found);
  Words words = script.words_of_variables();
  words.insert(words.end(), others.begin(), others.end());
  Json arguments = arguments_of(words, 0, words.size());
  if (!trains(arguments))
    throw DataError(
        name + " starts no program with arguments of Megatron-LM (such as pretrain_gpt.py --num-layers 32 ...), and holds none");
  notes.push_back("megatron no command starts a program here: read are the arguments that variables and lines hold");
  return arguments;
}

bool is_tree(const Json& root) {
  if (root.contains("MODEL_ARGS") || root.contains("language_model") || root.contains("model_parallel")) return true;
  return std::any_of(root.items().begin(), root.items().end(), [](const auto& entry) {
    return entry.key().starts_with("--") || entry.key() == "num_layers" || entry.key() == "tensor_model_parallel_size";
  });
}

Json arguments_of_tree(const Json& root, const std::string& name) {
  const auto model = root.find("MODEL_ARGS");
  const Json& arguments = model != root.end() ? *model : root;
  if (!arguments.is_object())
    throw DataError(name + ": MODEL_ARGS is " + shown(arguments) + "; it must be arguments with values");
  Json all = Json::object();
  add_tree(arguments, all, name, 0);
  return all;
}

}  // namespace consist::megatron
