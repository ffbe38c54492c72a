// Conversations as files have them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "datasets/jinja/value.h"

namespace consist::records {

struct Message {
  std::string role;        ///< "system", "user", "assistant", or another that the file has
  bool has_words = false;  ///< its content is a text that is not space alone
  std::size_t bytes = 0;   ///< of its texts
  jinja::Value value;      ///< as a chat template sees it; all but the role comes from the number of the message, from 0
};

/// The messages of a list such as OpenAI's, {"role": "user", "content": "..."}, or ShareGPT's, {"from": "human", "value": "..."}:
/// its human is user, its gpt assistant. A content may be a list of {"type": "text", "text": "..."}, which are joined; a message
/// with calls of tools needs none. Keys that are null are left out. Throws DataError that begins with `place` and says which
/// message is wrong; what cannot be trained on as text (images) is named.
std::vector<Message> read_messages(const nlohmann::ordered_json& list, const std::string& place);

}  // namespace consist::records
