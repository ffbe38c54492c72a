#include "datasets/records/messages.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "consist/json_input.h"
#include "consist/text.h"

namespace consist::records {
namespace {

using json = nlohmann::ordered_json;

constexpr const char* calls[] = {"tool_calls", "function_call"};

std::string keys_of(const json& object) {
  std::string keys;
  for (const auto& [key, value] : object.items()) keys += (keys.empty() ? "" : ", ") + in_quotes(key, 40);
  return keys.empty() ? "nothing" : keys;
}

bool calls_tools(const json& message) {
  return std::any_of(std::begin(calls), std::end(calls), [&](const char* key) {
    const auto found = message.find(key);
    return found != message.end() && !found->is_null() && !found->empty();
  });
}

/// A text, or null where the message says nothing, as it calls tools.
json content_of(const json& content, bool says_nothing, const std::string& where) {
  if (content.is_string() || (content.is_null() && says_nothing)) return content;
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

bool has_words(const std::string& text) {
  return jinja::stripped_range(text, nullptr, true, false).first < text.size();
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
    const bool of_sharegpt = !message.contains("role") && message.contains("from");
    const char *const role = of_sharegpt ? "from" : "role", *const content = of_sharegpt ? "value" : "content";
    if (!message.contains(role) || (!message.contains(content) && !calls_tools(message)))
      throw DataError(where + " has " + keys_of(message) + "; it needs \"role\" and \"content\", or \"from\" and \"value\"");
    const auto origin = static_cast<std::int32_t>(messages.size());
    Message made;
    made.role = role_of(message[role], of_sharegpt, where);
    auto value = std::make_shared<jinja::Dict>();
    value->origin = origin;
    for (const auto& [key, item] : message.items()) {
      made.bytes += item.is_string() ? item.get_ref<const std::string&>().size() : item.dump().size();
      if (key == role) {
        value->set("role", jinja::Value::text(made.role));
      } else if (key == content) {
        const json text = content_of(item, calls_tools(message), where);
        made.has_words = text.is_string() && has_words(text.get_ref<const std::string&>());
        value->set("content", jinja::from_json(text, origin));
      } else if (!item.is_null()) {
        value->set(key, jinja::from_json(item, origin));
      }
    }
    made.value = std::move(value);
    messages.push_back(std::move(made));
  }
  return messages;
}

}  // namespace consist::records
