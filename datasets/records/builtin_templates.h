// Chat templates that are built in: programs in Jinja that write what those of their model families write.
#pragma once

#include <string>
#include <string_view>

namespace consist::records {

struct BuiltinTemplate {
  const char* name;
  /// Texts that stand for one token each in the tokenizers of its models, with commas between.
  const char* tokens;
  std::string program;
};

/// Null if there is none of this name.
const BuiltinTemplate* find_builtin_template(std::string_view name) noexcept;

/// "chatml, llama2, ...", for people.
#define CONSIST_CHAT_TEMPLATES "chatml, llama2, llama3, mistral, qwen2.5, qwen3"

}  // namespace consist::records
