#include "launch/cluster/kubernetes/yaml.h"

#include "core/base/split.h"

namespace consist::launch {
namespace {

using Tree = nlohmann::ordered_json;

std::string block(const std::string& text, std::size_t indent) {
  std::string all = "|\n";
  std::string_view rest = text;
  rest.remove_suffix(1);  // the last line's end
  for (const std::string_view line : split(rest, '\n'))
    all += (line.empty() ? "" : std::string(indent, ' ')) + std::string(line) + "\n";
  return all;
}

bool is_block(const Tree& tree) {
  if (!tree.is_string()) return false;
  const std::string& text = tree.get_ref<const std::string&>();
  return text.size() > 1 && text.back() == '\n' && text.front() != ' ' && text.front() != '\n' && text[text.size() - 2] != '\n';
}

/// The text behind "key:" or "-", with its last line's end.
std::string value_text(const Tree& tree, std::size_t indent);

std::string lines_text(const Tree& tree, std::size_t indent, bool first_is_indented) {
  std::string all;
  const std::string margin(indent, ' ');
  bool first = true;
  for (const auto& [key, value] : tree.items()) {
    if (!first || !first_is_indented) all += margin;
    first = false;
    if (tree.is_array()) {
      const bool is_tree = value.is_structured() && !value.empty();
      all += is_tree ? "- " + lines_text(value, indent + 2, true) : "- " + value_text(value, indent + 2).substr(1);
    } else {
      all += (key.find_first_of(" :#") == std::string::npos ? key : Tree(key).dump()) + ":" + value_text(value, indent + 2);
    }
  }
  return all;
}

std::string value_text(const Tree& tree, std::size_t indent) {
  if (is_block(tree)) return " " + block(tree.get_ref<const std::string&>(), indent);
  if (!tree.is_structured() || tree.empty()) return " " + tree.dump(-1, ' ', false, Tree::error_handler_t::replace) + "\n";
  return "\n" + lines_text(tree, indent, false);
}

}  // namespace

std::string yaml_text(const nlohmann::ordered_json& tree) {
  return lines_text(tree, 0, false);
}

}  // namespace consist::launch
