// Chat templates: how a conversation is written as one text. A model's own template is a Jinja program (chat_template in
// tokenizer_config.json, or chat_template.jinja); those of the model families that ship are built in, under names of their own,
// and a file's program is recognised by its text. Any other is refused: what it writes would have to be guessed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/records/messages.h"

namespace consist::records {

/// A piece of the text. `role` is that of the message whose words and end these are (what a model that takes this role must
/// write); empty for what introduces a message or stands between two.
struct ChatPart {
  std::string text;
  std::string role = {};
};

struct ChatTemplate {
  const char* name;
  /// Texts that stand for one token each in the tokenizers of its models, with commas between.
  const char* tokens;
  const char* roles;  ///< that it can write, with commas between; empty: any
  /// `place` begins what it throws: DataError for an order of roles that the template refuses.
  std::vector<ChatPart> (*write)(const std::vector<Message>& messages, const std::string& place);
};

/// Null if there is none of this name.
const ChatTemplate* find_chat_template(std::string_view name) noexcept;

/// "chatml|llama2|...", in the order of --help.
#define CONSIST_CHAT_TEMPLATES "chatml|llama2|llama3|mistral|qwen2.5|qwen3"

/// The template that this Jinja program is, if it is one of those that are built in.
const ChatTemplate* recognise_chat_template(std::string_view program) noexcept;

/// The template of the model that a tokenizer.json belongs to, from the files beside it. Throws UsageError, which names `option`
/// and what there is to choose from, if there is none or it is none of those that are built in; DataError for a damaged file.
const ChatTemplate& chat_template_beside(const std::string& tokenizer_json, const std::string& option);

/// The conversation as text. Throws DataError that begins with `place` for a role that the template cannot write.
std::vector<ChatPart> write_chat(const ChatTemplate& chat, const std::vector<Message>& messages, const std::string& place);

}  // namespace consist::records
