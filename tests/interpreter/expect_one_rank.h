// Cells as expectations of tests.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "consist/error.h"
#include "tests/interpreter/cell.h"

namespace consist::interpreter {

using Words = std::vector<std::string>;

inline Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// Runs the cell in a timing of its own and reports all that is wrong with it.
inline void expect_one_rank(const ModelChoice& model, const Words& words) {
  const std::string text = text_of(model, words);
  try {
    for (const std::string& wrong : check(model, words, std::hash<std::string>()(text))) ADD_FAILURE() << text << "\n" << wrong;
  } catch (const std::exception& error) {
    ADD_FAILURE() << text << "\n" << error.what();
  }
}

inline const ModelChoice llama{"llama-tied"}, qwen{"qwen3-untied"}, balanced{"qwen3-moe"}, four_experts{"mixtral"};
inline const ModelChoice even_words{"qwen3-moe", R"({"vocab_size": 64})"};
inline const ModelChoice four_heads{"qwen3-tied", R"({"num_attention_heads": 4, "num_key_value_heads": 2})"};

/// Why the configuration is refused; "nothing was refused" otherwise.
inline std::string refusal(const ModelChoice& model, const Words& words) {
  try {
    compile(config_of(model, words), 0);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was refused";
}

/// A model and a precision with its options: the columns of the matrices below.
struct Column {
  const char* name;
  ModelChoice model;
  Words precision = {};
};

inline void PrintTo(const Column& column, std::ostream* out) {
  *out << column.name;
}

/// Under fp8 without --tp-sp.overlap-parts: linears multiply tokens that were quantized together, so that no part of them can go
/// ahead.
inline void expect_one_rank(const Column& column, Words words) {
  if (!column.precision.empty() && column.precision[0] == "--precision=fp8")
    std::erase_if(words, [](const std::string& word) { return word.starts_with("--tp-sp.overlap-parts"); });
  expect_one_rank(column.model, column.precision + words);
}

}  // namespace consist::interpreter
