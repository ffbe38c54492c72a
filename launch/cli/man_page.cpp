#include "launch/cli/man_page.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "consist/error.h"
#include "core/config/option_value.h"
#include "launch/cli/command_lines.h"

namespace consist::launch {
namespace {

/// Text that troff shows as it stands: no escapes, dashes that can be copied, no requests at the beginning of lines.
std::string shown(const std::string& text) {
  std::string roff;
  bool begins = true;
  for (const char c : text) {
    if (begins && (c == '.' || c == '\'')) roff += "\\&";
    begins = c == '\n';
    if (c == '\\') {
      roff += "\\(rs";
    } else if (c == '-') {
      roff += "\\-";
    } else if (c == '~') {
      roff += "\\(ti";
    } else if (c == '^') {
      roff += "\\(ha";
    } else {
      roff += c;
    }
  }
  return roff;
}

std::string heading(const std::string& name, const std::string& version, const std::string& summary) {
  std::string upper = name;
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return ".TH \"" + shown(upper) + "\" 1 \"\" \"Consist " + shown(version) + "\" \"Consist\"\n.SH NAME\n" + shown(name) +
         " \\- " + shown(summary) + "\n";
}

/// The usage is the synopsis, what follows the description, as the terminal shows it.
std::string body(const std::string& help) {
  std::istringstream lines(help);
  std::string synopsis, description;
  bool usage = true;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() && !synopsis.empty()) usage = false;
    const std::string mark = "usage: ";
    if (line.starts_with(mark)) line.erase(0, mark.size());
    (usage ? synopsis : description) += line + "\n";
  }
  const auto block = [](const std::string& text) { return ".nf\n" + shown(text) + ".fi\n"; };
  description.erase(0, std::min(description.find_first_not_of('\n'), description.size()));
  return ".SH SYNOPSIS\n" + block(synopsis) + (description.empty() ? "" : ".SH DESCRIPTION\n" + block(description));
}

std::string entry_of(const RunOption& option) {
  std::string text = ".TP\n\\fB" + shown(std::string("--") + option.spec.name) + "\\fR";
  if (!option.is_switch()) text += " \\fI" + shown(option.value) + "\\fR";
  text += "\n" + shown(option.spec.help);
  if (!option.is_switch()) {
    if (option.spec.kind != OptionKind::text) text += ".\n" + shown("It is " + legal_text(option.spec));
    if (!option.is_unset(option.spec.fallback)) text += ".\nDefault: " + shown(option.spec.fallback);
  }
  return text + ".\n";
}

}  // namespace

std::string page_name(const std::string& command) {
  std::string name = command.empty() ? "consist" : "consist-" + command;
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::string man_page(const std::string& command, const std::string& summary, const std::string& help,
                     const std::string& version) {
  const CommandLine* const line = find_command_line(command);
  if (line == nullptr) throw UsageError("there is no page of '" + command + "'; consist man without a name lists the pages");
  std::string text = heading(page_name(command), version, summary) + body(help) + ".SH OPTIONS\n";
  for (const RunOption& option : line->own) text += entry_of(option);
  if (command == "train") {
    const char* title = nullptr;
    for (const RunOption& option : run_option_table()) {
      if (title != title_of(option.group)) text += ".SS " + shown(title_of(option.group)) + "\n";
      title = title_of(option.group);
      text += entry_of(option);
    }
  } else if (line->of_train && line->taken.empty()) {
    text += ".PP\nAll options of\n.BR consist\\-train (1)\nare taken, too.\n";
  }
  for (const std::string_view name : line->taken) {
    if (const RunOption* const option = find_run_option(name)) text += entry_of(*option);
  }
  return text + ".SH SEE ALSO\n.BR consist (1)" + (command == "train" ? "" : ",\n.BR consist\\-train (1)") + "\n";
}

std::string overview_page(const std::vector<std::pair<std::string, std::string>>& commands, const std::string& help,
                          const std::string& version) {
  std::string text = heading("consist", version, "composes training runs from interchangeable parts, runs and compares them") +
                     body(help) + ".SH COMMANDS\n";
  for (const auto& [command, summary] : commands)
    text += ".TP\n.BR " + shown(page_name(command)) + " (1)\n" + shown(summary) + ".\n";
  return text;
}

}  // namespace consist::launch
