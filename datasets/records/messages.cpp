#include "datasets/records/messages.h"

#include <iterator>

#include "consist/error.h"
#include "consist/json_input.h"
#include "consist/text.h"

namespace consist::records {
namespace {

using nlohmann::json;

std::string keys_of(const json& object) {
  std::string keys;
  for (const auto& [key, value] : object.items()) keys += (keys.empty() ? "" : ", ") + in_quotes(key, 40);
  return keys.empty() ? "nothing" : keys;
}

std::string text_of(const json& content, const std::string& where) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array())
    throw DataError(where + " has the content " + shown(content, 60) + "; it must be a text, or a list of texts");
  std::string text;
  for (const json& part : content) {
    if (!part.is_object() || part.value("type", json()) != "text" || !part.contains("text") || !part["text"].is_string())
      throw DataError(where + " has in its content " + shown(part, 60) +
                      "; only {\"type\": \"text\", \"text\": \"...\"} can be trained on");
    text += part["text"].get<std::string>();
  }
  return text;
}

std::string role_of(const json& role, bool of_sharegpt, const std::string& where) {
  if (!role.is_string() || role.get<std::string>().empty())
    throw DataError(where + " has the role " + shown(role, 60) + "; it must be a text such as \"user\"");
  const std::string name = role.get<std::string>();
  if (of_sharegpt && name == "human") return "user";
  if (of_sharegpt && (name == "gpt" || name == "chatgpt" || name == "bot")) return "assistant";
  return name;
}

}  // namespace

std::vector<Message> read_messages(const json& list, const std::string& place) {
  if (!list.is_array()) throw DataError(place + " is no list of messages but " + shown(list, 60));
  if (list.empty()) throw DataError(place + " is a list without messages");
  std::vector<Message> messages;
  for (const json& message : list) {
    const std::string where = place + ", message " + std::to_string(messages.size() + 1);
    if (!message.is_object()) throw DataError(where + " is no object but " + shown(message, 60));
    const bool of_openai = message.contains("role") && message.contains("content"),
               of_sharegpt = message.contains("from") && message.contains("value");
    for (const char* calls : {"tool_calls", "function_call"}) {
      if (const auto found = message.find(calls); found != message.end() && !found->is_null() && !found->empty())
        throw DataError(where + " has \"" + calls + "\", which no chat template here can write; take such conversations out");
    }
    if (!of_openai && !of_sharegpt)
      throw DataError(where + " has " + keys_of(message) + "; it needs \"role\" and \"content\", or \"from\" and \"value\"");
    messages.push_back({role_of(message[of_openai ? "role" : "from"], !of_openai, where),
                        text_of(message[of_openai ? "content" : "value"], where)});
  }
  return messages;
}

}  // namespace consist::records
