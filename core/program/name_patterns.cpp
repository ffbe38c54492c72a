#include "core/program/name_patterns.h"

#include <fnmatch.h>

#include <algorithm>
#include <set>

#include "consist/error.h"
#include "core/base/did_you_mean.h"
#include "core/base/split.h"

namespace consist {

std::vector<std::string> parse_patterns(const std::string& option, const std::string& text) {
  if (text.empty()) return {};
  std::vector<std::string> patterns;
  for (const std::string_view pattern : split(text, ',')) {
    if (pattern.empty())
      throw UsageError(option + " '" + text + "' has an empty pattern; write for example " + option +
                       " 'model.embed_tokens.*,model.layers.0.*'");
    patterns.emplace_back(pattern);
  }
  return patterns;
}

std::string patterns_text(const std::vector<std::string>& patterns) {
  std::string text;
  for (const std::string& pattern : patterns) text += (text.empty() ? "" : ",") + pattern;
  return text;
}

bool matches_any(const std::vector<std::string>& patterns, std::string_view name) {
  const std::string whole(name);
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return fnmatch(pattern.c_str(), whole.c_str(), 0) == 0; });
}

void require_matches(const Program& program, const std::string& option, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    if (std::any_of(program.parameters.begin(), program.parameters.end(),
                    [&](const Parameter& p) { return matches_any({pattern}, p.name); }))
      continue;
    const std::string word = pattern.substr(0, pattern.find_last_not_of('*') + 1);  // as far as a name could begin like that
    std::set<std::string> names;
    for (const Parameter& p : program.parameters) names.insert(word == pattern ? p.name : p.name.substr(0, word.size()));
    std::vector<KnownName> known;
    for (const std::string& name : names) known.push_back({name});
    throw UsageError(option + " '" + pattern + "' matches no parameter of the model, which has '" +
                     program.parameters.front().name + "' and " + std::to_string(program.parameters.size() - 1) + " more." +
                     did_you_mean(word, known));
  }
}

}  // namespace consist
