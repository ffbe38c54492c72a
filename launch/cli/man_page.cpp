#include "launch/cli/man_page.h"

#include <algorithm>
#include <cctype>

#include "core/config/option_value.h"

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

/// Sections of the command's texts, as the terminal shows them.
std::string body(const Command& command) {
  const auto block = [](const char* title, const std::string& text) {
    return text.empty() ? ""
                        : std::string(".SH ") + title + "\n.nf\n" + shown(text + (text.ends_with('\n') ? "" : "\n")) + ".fi\n";
  };
  const std::string between = *command.about != '\0' && *command.notes != '\0' ? "\n" : "";
  return block("SYNOPSIS", "consist " + std::string(command.name) + (command.name.empty() ? "" : " ") + command.usage) +
         block("DESCRIPTION", command.about + between + command.notes) + block("EXAMPLES", command.example);
}

std::string entry_of(const RunOption& option) {
  const std::string letter = option.letter == '\0' ? "" : std::string("-") + option.letter + ", ";
  std::string text = ".TP\n\\fB" + shown(letter + "--" + option.spec.name) + "\\fR";
  if (!option.is_switch()) text += " \\fI" + shown(option.value) + "\\fR";
  text += "\n" + shown(option.spec.help);
  if (!option.is_switch()) {
    if (option.spec.kind != OptionKind::text) text += ".\n" + shown("It is " + legal_text(option.spec));
    if (!option.is_unset(option.spec.fallback)) text += ".\nDefault: " + shown(option.spec.fallback);
  }
  return text + ".\n";
}

}  // namespace

std::string page_name(std::string_view command) {
  std::string name = "consist-" + std::string(command);
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::string man_page(const Command& command, const std::string& version) {
  std::string text = heading(page_name(command.name), version, command.summary) + body(command) + ".SH OPTIONS\n";
  text += entry_of(help_option);
  for (const RunOption& option : command.own) text += entry_of(option);
  if (command.is_of_runs) {
    const char* title = nullptr;
    for (const RunOption& option : run_option_table()) {
      if (title != title_of(option.group)) text += ".SS " + shown(title_of(option.group)) + "\n";
      title = title_of(option.group);
      text += entry_of(option);
    }
  }
  for (const TakenOption& taken : command.taken) {
    RunOption option = *find_run_option(taken.name);
    if (*taken.help != '\0') option.spec.help = taken.help;
    text += entry_of(option);
  }
  if (command.takes == Takes::all && !command.is_of_runs)
    text += ".PP\nAll options of\n.BR consist\\-train (1)\nare taken, too.\n";
  return text + ".SH SEE ALSO\n.BR consist (1)" + (command.is_of_runs ? "" : ",\n.BR consist\\-train (1)") + "\n";
}

std::string overview_page(CommandTable commands, const std::string& version) {
  const Command overview{.usage = "COMMAND [OPTIONS]",
                         .about =
                             "Composes a training run from interchangeable parts, runs it, and measures which configuration\n"
                             "is fastest.\n"};
  std::string text = heading("consist", version, "composes training runs from interchangeable parts, runs and compares them") +
                     body(overview) + ".SH COMMANDS\n";
  for (const Command* command : commands) {
    if (!command->is_hidden()) text += ".TP\n.BR " + shown(page_name(command->name)) + " (1)\n" + shown(command->summary) + ".\n";
  }
  return text;
}

}  // namespace consist::launch
