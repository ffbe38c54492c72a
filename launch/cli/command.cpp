#include "launch/cli/command.h"

#include <algorithm>

#include "core/base/split.h"

namespace consist {
namespace {

constexpr std::size_t most_columns = 120;
constexpr std::size_t most_indent = 28;  ///< of the sentences about options

/// Words of `text` in lines: the first goes on at `column`, the others begin behind `indent` blanks.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t column) {
  std::string lines;
  for (const std::string_view word : split(text, ' ')) {
    if (!lines.empty() && column + 1 + word.size() > most_columns) {
      lines.append("\n").append(indent, ' ');
      column = indent;
    } else if (!lines.empty()) {
      lines.append(" ");
      ++column;
    }
    lines.append(word);
    column += word.size();
  }
  return lines.append("\n");
}

/// "--steps N [100]"
std::string head_of(const RunOption& option) {
  const std::string fallback = option.spec.fallback;
  const bool says_default = !option.is_switch() && !fallback.empty() && fallback != "0";  // what 0 means is said in words
  return (option.letter == '\0' ? std::string() : std::string("-") + option.letter + ", ") + "--" + option.spec.name +
         (option.is_switch() ? "" : std::string(" ") + option.value) + (says_default ? " [" + fallback + "]" : "");
}

struct Entry {
  std::string head;
  std::string_view help;
};

std::vector<Entry> entries_of(const Command& command) {
  std::vector<Entry> entries;
  for (const TakenOption& taken : command.taken) {
    if (*taken.help != '\0') entries.push_back({head_of(*find_run_option(taken.name)), taken.help});
  }
  for (const RunOption& option : command.own) entries.push_back({head_of(option), option.spec.help});
  return entries;
}

std::string options_text(const Command& command) {
  if (command.is_of_runs) {
    std::vector<RunOption> options(run_option_table().begin(), run_option_table().end());
    options.insert(options.end(), command.own.begin(), command.own.end());
    std::stable_sort(options.begin(), options.end(), [](const RunOption& a, const RunOption& b) { return a.group < b.group; });
    return help_text(options, most_columns);
  }
  const std::vector<Entry> entries = entries_of(command);
  std::size_t width = 0;
  for (const Entry& entry : entries) {
    if (entry.head.size() + 4 <= most_indent) width = std::max(width, entry.head.size() + 4);
  }
  std::string text;
  for (const Entry& entry : entries) {
    std::string line = "  " + entry.head + "  ";
    if (line.size() < width) line.append(width - line.size(), ' ');
    text += line + wrapped(entry.help, width, line.size());
  }
  std::string as_in_train;
  for (const TakenOption& taken : command.taken) {
    if (*taken.help == '\0') as_in_train += (as_in_train.empty() ? "" : ", ") + head_of(*find_run_option(taken.name));
  }
  const std::string title = "  As in train: ";
  if (!as_in_train.empty()) text += title + wrapped(as_in_train, 4, title.size());
  return text;
}

}  // namespace

bool Command::takes_of_run(std::string_view option) const noexcept {
  return takes == Takes::all || (takes == Takes::named &&
                                 std::any_of(taken.begin(), taken.end(), [&](const TakenOption& t) { return t.name == option; }));
}

const RunOption* Command::find(std::string_view option) const noexcept {
  const auto found = std::find_if(own.begin(), own.end(), [&](const RunOption& row) { return row.spec.name == option; });
  if (found != own.end()) return &*found;
  if (option == help_option.spec.name) return &help_option;
  return takes_of_run(option) ? find_run_option(option) : nullptr;
}

const Command* find_command(CommandTable table, std::string_view name) noexcept {
  const auto found = std::find_if(table.begin(), table.end(), [&](const Command* command) { return command->name == name; });
  return found == table.end() ? nullptr : *found;
}

std::string help_of(const Command& command) {
  std::string text = "usage: consist " + std::string(command.name) + " " + command.usage;
  const std::string options = options_text(command);
  const std::string_view says = "   (defaults in brackets)";
  if (options.find(" [") != std::string::npos && text.find('\n') == std::string::npos &&
      text.size() + says.size() <= most_columns)
    text += says;
  text += "\n\n" + std::string(command.about);
  const auto add = [&](const std::string& paragraph) {
    if (!paragraph.empty()) text += (text.ends_with("\n\n") ? "" : "\n") + paragraph;
  };
  add(options);
  const std::string example = *command.example == '\0' ? "" : std::string("example: ") + command.example;
  if (command.is_of_runs) return text + std::string(command.notes) + example;  // the longest help, which fits a screen
  add(command.notes);
  add(example);
  return text;
}

}  // namespace consist
