#include "launch/cli/own_options.h"

#include <algorithm>

#include "consist/error.h"
#include "core/base/did_you_mean.h"
#include "core/config/option_value.h"

namespace consist {

OwnOptions read_own_options(const std::string& command, const std::vector<std::string>& arguments,
                            std::span<const RunOption> table) {
  OwnOptions options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--") {
      options.operands.insert(options.operands.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1, arguments.end());
      break;
    }
    if (!word.starts_with("-") || word == "-") {
      options.operands.push_back(word);
      continue;
    }
    const std::size_t equals = word.find('=');
    const std::string said = word.substr(0, equals);
    const auto option =
        std::find_if(table.begin(), table.end(), [&](const RunOption& o) { return said == std::string("--") + o.spec.name; });
    if (option == table.end()) {
      std::vector<KnownName> known;
      for (const RunOption& row : table) known.push_back({row.spec.name});
      throw UsageError(
          "consist " + command + " has no option '" + said + "'; see consist " + command + " --help." +
          did_you_mean(said.substr(said.find_first_not_of('-') == std::string::npos ? said.size() : said.find_first_not_of('-')),
                       known));
    }
    const std::string name = option->spec.name;
    std::string value = "true";
    if (equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else if (!option->is_switch()) {
      if (i + 1 == arguments.size()) throw UsageError(said + " needs a value: " + option->spec.help);
      value = arguments[++i];
    }
    std::vector<std::string>& values = options.given[name];
    if (!values.empty() && !option->repeats) throw UsageError(said + " is given twice");
    values.push_back(legal_value(option->spec, value, said));
  }
  return options;
}

}  // namespace consist
