// Dataset plugins as the program loads them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "consist/dataset.h"
#include "consist/error.h"
#include "core/plugin/host.h"

namespace consist::test {

using Given = std::map<std::string, std::string>;

inline PluginHost& host() {
  static PluginHost host({});
  return host;
}

inline std::shared_ptr<Dataset> open(const std::string& name, const Given& options, std::int64_t sequence,
                                     std::int64_t vocabulary = 4096, std::uint64_t seed = 0) {
  auto dataset = host().make<Dataset>("dataset", name, options);
  dataset->open({.sequence_length = sequence, .vocabulary = vocabulary, .seed = seed});
  return dataset;
}

/// The message of the `Expected` that open() throws, "accepted" without any.
template <typename Expected>
std::string refusal(const std::string& name, const Given& options, std::int64_t sequence, std::int64_t vocabulary = 4096) {
  try {
    open(name, options, sequence, vocabulary);
  } catch (const Expected& error) {
    return error.what();
  }
  return "accepted";
}

inline std::vector<std::int32_t> read(const Dataset& dataset, std::int64_t index, std::size_t sequence) {
  std::vector<std::int32_t> tokens(sequence + 1);
  dataset.read_train(index, tokens);
  return tokens;
}

/// A field of a training sequence.
inline std::vector<std::int32_t> read_field(const Dataset& dataset, const std::string& name, std::int64_t index,
                                            std::size_t sequence) {
  std::vector<std::int32_t> values(sequence, -7);
  const FieldValues field{{name, DType::i32}, values.data()};
  dataset.read_train_fields(index, {&field, 1});
  return values;
}

}  // namespace consist::test
