// Chat templates: how a conversation is written as one text. A model's own is a Jinja program (chat_template in
// tokenizer_config.json, or chat_template.jinja), which is run here; those of the model families that ship are built in, too.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "datasets/jinja/template.h"
#include "datasets/records/builtin_templates.h"

namespace consist::records {

struct ChatTemplate {
  std::string name;     ///< "chatml", or the file that it is from
  std::string program;  ///< in Jinja
  std::string tokens;   ///< of one that is built in: texts that should be one token each, with commas between
  /// bos_token, eos_token and the like, of the tokenizer that it is used with.
  std::vector<std::pair<std::string, std::string>> special_tokens;
};

/// Returns the template for `choice`: one that is built in, a file with one, or auto: that of the model of `tokenizer_json`,
/// from the files beside it, where special tokens are read as well. Throws UsageError, which names `option` and what there is to
/// choose from, if there is none; DataError for a damaged file.
ChatTemplate choose_chat_template(const std::string& choice, const std::string& tokenizer_json, const std::string& option);

/// The template beside a tokenizer.json; nothing if there is none. Throws DataError for a damaged file.
std::optional<ChatTemplate> chat_template_beside(const std::string& tokenizer_json);

/// `program` as a template that is used with `tokenizer_json`.
ChatTemplate chat_template_of(std::string program, const std::string& name, const std::string& tokenizer_json);

}  // namespace consist::records
