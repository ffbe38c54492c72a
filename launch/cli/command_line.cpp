#include "launch/cli/command_line.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <utility>

#include "consist/error.h"
#include "core/base/did_you_mean.h"
#include "core/config/option_value.h"
#include "core/job/environment.h"
#include "launch/cli/command_line_style.h"
#include "launch/cli/json_output.h"

namespace consist {

namespace po = boost::program_options;

namespace {

void describe(const RunOption& option, po::options_description& described) {
  if (described.find_nothrow(option.spec.name, false) != nullptr) return;  // a command's own option is before one of a run
  if (option.repeats) {
    auto* const values = po::value<std::vector<std::string>>()->composing();
    described.add_options()(option.spec.name, option.takes_several ? values->multitoken() : values);
  } else if (option.is_switch()) {
    described.add_options()(option.spec.name, po::value<std::string>()->implicit_value("true"));
  } else {
    described.add_options()(option.spec.name, po::value<std::string>());
  }
}

po::options_description described(const Command& command) {
  po::options_description all;
  for (const RunOption& option : command.own) describe(option, all);
  describe(help_option, all);
  if (command.takes_run_options()) {  // also those that it does not take, so that it can say so
    for (const RunOption& option : run_option_table()) describe(option, all);
  }
  return all;
}

std::string see_help(const Command& command) {
  return "see consist " + std::string(command.name) + " --help";
}

/// Throws the UsageError of a word that is no option of the command.
[[noreturn]] void refuse(const Command& command, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  const std::string says = "consist " + std::string(command.name) + " has no option '" + name + "'; ";
  if (command.operand.starts_with("-- ")) throw UsageError(says + "the command of the ranks comes after --");
  std::vector<KnownName> known;
  for (const RunOption& row : command.own) known.push_back({row.spec.name});
  throw UsageError(says + see_help(command) + "." +
                   did_you_mean(name.substr(std::min(name.find_first_not_of('-'), name.size())), known));
}

/// Long names for short ones.
void spell_out(const Command& command, std::vector<std::string>& words) {
  for (std::string& word : words) {
    if (word == "-h") word = "--help";
    for (const RunOption& option : command.own) {
      if (option.letter != '\0' && word == std::string("-") + option.letter) word = std::string("--") + option.spec.name;
    }
  }
}

void take(CommandLine& line, const po::option& option) {
  const std::string& name = option.string_key;
  GivenOption& given = line.given[name];
  if (option.value.empty() && given.values == std::vector<std::string>{"true"}) return;  // a switch once more says the same
  if (!given.values.empty() && !line.command->find(name)->repeats) throw UsageError("--" + name + " is given twice");
  given.said = "--" + name;
  if (option.value.empty()) given.values.emplace_back("true");
  given.values.insert(given.values.end(), option.value.begin(), option.value.end());
}

void check_own_values(CommandLine& line) {
  for (const RunOption& option : line.command->own) {
    const auto given = line.given.find(option.spec.name);
    if (given == line.given.end()) continue;
    for (std::string& value : given->second.values) value = legal_value(option.spec, value, given->second.said);
  }
}

}  // namespace

CommandLine read_command_line(const Command& command, std::vector<std::string> arguments) {
  CommandLine line{.command = &command, .arguments = std::move(arguments), .given = {}, .operands = {}, .rest = {}};
  if (command.takes == Takes::words) return line;
  const auto dashes = std::find(line.arguments.begin(), line.arguments.end(), "--");
  std::vector<std::string> words(line.arguments.begin(), dashes);
  spell_out(command, words);
  try {
    const po::options_description known = described(command);
    const po::parsed_options parsed =
        po::command_line_parser(words).options(known).style(command_line_style).allow_unregistered().run();
    for (const po::option& option : parsed.options) {
      if (!option.unregistered && option.position_key < 0) {
        if (command.find(option.string_key) == nullptr)
          throw UsageError("--" + option.string_key + " has no meaning for consist " + std::string(command.name) + "; " +
                           see_help(command));
        take(line, option);
      } else if (!command.takes_parts()) {
        const std::string& word = option.original_tokens.front();
        const bool is_option = word.size() > 1 && word.starts_with('-');
        if (is_option || command.operand.starts_with("-- ")) refuse(command, word);
        line.operands.push_back(word);
      }
    }
    if (command.takes_parts()) line.rest = po::collect_unrecognized(parsed.options, po::include_positional);
  } catch (const po::invalid_command_line_syntax& error) {
    std::string name = error.get_option_name();
    if (error.kind() != po::invalid_syntax::missing_parameter)
      throw UsageError(std::string(error.what()) + "; " + see_help(command));
    name.erase(0, std::min(name.find_first_not_of('-'), name.size()));
    throw UsageError("--" + name + " needs a value; " + see_help(command));
  } catch (const po::error& error) {
    throw UsageError(std::string(error.what()) + "; " + see_help(command));
  }
  std::vector<std::string>& behind = command.takes_parts() ? line.rest : line.operands;
  if (dashes != line.arguments.end()) behind.insert(behind.end(), dashes + 1, line.arguments.end());
  if (line.has("help")) return line;
  if (command.operand.empty() && !line.operands.empty())
    throw UsageError("'" + line.operands.front() + "' is neither an option nor the value of one; " + see_help(command));
  check_own_values(line);
  return line;
}

std::string CommandLine::value(const std::string& name) const {
  const RunOption& option = *command->find(name);
  return has(name) ? legal_value(option.spec, text(name), given.at(name).said) : std::string(option.spec.fallback);
}

std::int64_t CommandLine::integer(const std::string& name) const {
  const std::string text = value(name);
  return command->find(name)->spec.kind == OptionKind::bytes ? parse_bytes(text) : std::strtoll(text.c_str(), nullptr, 10);
}

double CommandLine::real(const std::string& name) const {
  return std::strtod(value(name).c_str(), nullptr);
}

std::vector<std::string> words_of_others(const CommandLine& line, const std::set<std::string>& left_out) {
  std::vector<std::string> words;
  for (auto word = line.arguments.begin(); word != line.arguments.end(); ++word) {
    const std::string name = word->substr(0, word->find('='));
    const std::string bare = name.starts_with("--") ? name.substr(2) : "";
    const RunOption* const option = line.command->find(bare);
    const std::span<const RunOption> own = line.command->own;
    const bool is_own = std::any_of(own.begin(), own.end(), [&](const RunOption& row) { return &row == option; });
    if (!is_own && !left_out.contains(bare)) {
      words.push_back(*word);
      continue;
    }
    if (option == nullptr || option->is_switch() || name != *word) continue;
    do {
      ++word;
    } while (option->takes_several && word + 1 != line.arguments.end() && !(word + 1)->starts_with("--"));
  }
  return words;
}

namespace {

/// True if the words ask for JSON on standard output, which they do before it is known that the others are legal.
bool asks_for_json(const Command& command, const std::vector<std::string>& words) {
  const RunOption* const row = command.find("json");
  const auto given = [&](const char* word) { return std::find(words.begin(), words.end(), word) != words.end(); };
  return row != nullptr && row->is_switch() && (given("--json") || given("--json=true")) && !given("--help") &&
         !given("--print-config");
}

}  // namespace

int run_command(const Command& command, std::vector<std::string> arguments) {
  if (asks_for_json(command, arguments)) launch::begin_json_output(job_address_from_environment(process_environment()).rank == 0);
  const CommandLine line = read_command_line(command, std::move(arguments));
  if (!line.flag("help")) return command.run(line);
  std::fputs(help_of(command).c_str(), stdout);
  return 0;
}

}  // namespace consist
