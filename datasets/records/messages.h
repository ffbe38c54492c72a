// Conversations as files have them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace consist::records {

struct Message {
  std::string role;  ///< "system", "user", "assistant", or another that the file has
  std::string content;
};

/// The messages of a list such as OpenAI's, {"role": "user", "content": "..."}, or ShareGPT's, {"from": "human", "value": "..."}:
/// its human is user, its gpt assistant. A content may be a list of {"type": "text", "text": "..."}, which are joined. Throws
/// DataError that begins with `place` and says which message is wrong; what cannot be trained on as text (images, calls of tools)
/// is named.
std::vector<Message> read_messages(const nlohmann::json& list, const std::string& place);

}  // namespace consist::records
