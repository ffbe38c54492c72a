#include "launch/cli/left_out.h"

#include <nlohmann/json.hpp>

#include "consist/text.h"

namespace consist {

void LeftOut::add(OptionRole role, const OptionSpec& spec, const std::string& name, const nlohmann::json& value) {
  using nlohmann::json;
  constexpr std::size_t most_text = 200;
  const std::string text =
      value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.empty() || text == spec.fallback) return;
  std::string& all = role == OptionRole::code ? code_ : results_;
  all += (all.empty() ? "--" : ", --") + name + (spec.kind == OptionKind::flag ? "" : " " + in_quotes(text, most_text));
}

void LeftOut::say(const std::string& where, std::vector<std::string>& notes) const {
  if (!code_.empty())
    notes.push_back(where + ": not taken over is what names code, which the file of a run may not choose: " + code_ +
                    "; if you trust it, give it on the command line");
  if (!results_.empty())
    notes.push_back(where + ": not taken over is where that run wrote its results: " + results_ +
                    "; name places of your own to keep results");
}

}  // namespace consist
