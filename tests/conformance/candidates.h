// The parts that a conformance test runs against.
#pragma once

#include <cstdlib>
#include <map>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "core/plugin/host.h"

namespace consist::testing {

struct Candidate {
  std::string name;
  std::map<std::string, std::string> options;
};

inline void PrintTo(const Candidate& candidate, std::ostream* stream) {
  *stream << candidate.name;
}

/// The options that a part of the tree needs with the small models of the tests.
inline std::map<std::string, std::string> options_of_tests(const std::string& kind, const std::string& name) {
  if (kind == "loss" && name == "distillation") return {{"teacher", "qwen3-tiny"}};
  if (kind == "optimizer" && name == "adamw-8bit") return {{"block", "4"}};
  return {};
}

/// Those that the environment variable names ("socket,efa:provider=tcp"); without it all parts of `kind` that are found.
inline std::vector<Candidate> candidates(const std::string& kind, const char* variable) {
  std::vector<Candidate> result;
  const char* const given = std::getenv(variable);
  if (given == nullptr) {
    for (const std::string& name : PluginHost({}).names(kind)) result.push_back({name, options_of_tests(kind, name)});
    return result;
  }
  std::istringstream list(given);
  for (std::string item; std::getline(list, item, ',');) {
    std::istringstream words(item);
    Candidate candidate;
    std::getline(words, candidate.name, ':');
    for (std::string option; std::getline(words, option, ':');) {
      const std::size_t equals = option.find('=');
      candidate.options[option.substr(0, equals)] = equals == std::string::npos ? "true" : option.substr(equals + 1);
    }
    result.push_back(candidate);
  }
  return result;
}

}  // namespace consist::testing
