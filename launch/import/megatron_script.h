// Megatron-LM's arguments as users keep them: in a shell script that starts it, in a file of arguments, in YAML.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace consist::megatron {

/// The arguments of the command that starts a *.py with them, as {"num-layers": "32", "swiglu": true, "betas": ["0.9", "0.95"]};
/// those of torchrun as {"torchrun": {"nproc-per-node": "8", ...}}. Nothing is executed: assignments, arrays, expansions
/// (${NAME:-default}, $((2*3))) and the branches of `if` and `case` whose condition is known are followed. What is not known is
/// empty, and `notes` says so. Without such a command the arguments are those of all words that begin with --. Throws DataError
/// that begins with `name` for a text without arguments, more than 100,000 words, and deeper nesting than 16 levels.
nlohmann::json arguments_of_script(const std::string& text, const std::string& name, std::vector<std::string>& notes);

/// True if a tree of YAML or JSON has Megatron-LM's arguments: under MODEL_ARGS, as keys with --, or by their names.
bool is_tree(const nlohmann::json& root);
/// These arguments in the form above. Throws DataError for a tree of another shape.
nlohmann::json arguments_of_tree(const nlohmann::json& root, const std::string& name);

}  // namespace consist::megatron
