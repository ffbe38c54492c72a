#include "datasets/records/chat_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "consist/json_input.h"
#include "consist/text.h"

namespace consist::records {
namespace {

using Json = nlohmann::ordered_json;
using Ranges = WrittenChat::Ranges;

jinja::Template parsed(const ChatTemplate& chat) {
  try {
    return jinja::Template(chat.program);
  } catch (const DataError& error) {
    throw DataError("the chat template " + in_quotes(chat.name) + ", " + error.what());
  }
}

/// Bytes of a text that one message wrote without another in between.
struct Stretch {
  std::size_t begin, end;
  std::int32_t origin;
};

std::vector<Stretch> stretches_of(const jinja::Text& text) {
  std::vector<Stretch> all;
  for (const jinja::Mark& mark : text.marks) {
    if (!all.empty() && all.back().origin == mark.origin) {
      all.back().end = mark.end;
    } else {
      all.push_back({mark.begin, mark.end, mark.origin});
    }
  }
  return all;
}

/// So many steps that a program which looks at each message a few times comes to its end, and one that looks at each for each
/// does not where there are many.
jinja::RenderLimits limits_for(const Conversation& conversation) {
  jinja::RenderLimits limits;
  limits.steps = 1'000'000 + 500 * static_cast<std::int64_t>(conversation.messages.size());
  for (const Message& message : conversation.messages) limits.steps += 2 * static_cast<std::int64_t>(message.bytes);
  for (const auto& [name, value] : conversation.variables) limits.steps += 10 * static_cast<std::int64_t>(value.dump().size());
  return limits;
}

std::string common_begin(std::string_view a, std::string_view b) {
  const auto [at, ignored] =
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())), b.begin());
  return {a.begin(), at};
}

/// A list of objects of which none was looked into.
bool is_unread(const jinja::Value& value) {
  const jinja::List* const list = value.as_list();
  return list != nullptr && !list->items.empty() &&
         std::all_of(list->items.begin(), list->items.end(), [](const jinja::Value& item) {
           return item.as_dict() != nullptr && item.as_dict()->read.empty() && !item.as_dict()->entries.empty();
         });
}

Conversation said(std::initializer_list<const char*> texts) {
  Json list = Json::array();
  for (const char* text : texts) list.push_back(Json{{"role", list.size() % 2 == 0 ? "user" : "assistant"}, {"content", text}});
  return {read_messages(list, ""), {}};
}

}  // namespace

bool LearntRoles::has(const std::string& role) const {
  return all || std::find(roles.begin(), roles.end(), role) != roles.end();
}

ChatWriter::ChatWriter(ChatTemplate chat, LearntRoles learnt, std::vector<std::string> ignored, std::optional<std::tm> day)
    : chat_(std::move(chat)), program_(parsed(chat_)), learnt_(std::move(learnt)), ignored_(std::move(ignored)), day_(day) {
  try {
    probe();
  } catch (const DataError& error) {
    const bool marks_alone = program_.marks_generation() && learnt_.roles == std::vector<std::string>{"assistant"};
    if (learnt_.all || marks_alone) return;
    throw DataError(
        "the chat template " + in_quotes(chat_.name) +
        " does not show where an answer begins and ends: it writes a question, an answer and a question like this: " +
        error.what() +
        ". Put {% generation %} and {% endgeneration %} around what an assistant says and learn that alone, or learn all tokens");
  }
}

jinja::Rendering ChatWriter::render(const Conversation& conversation, bool with_prompt) const {
  std::vector<std::pair<std::string, jinja::Value>> variables;
  for (const auto& [name, text] : chat_.special_tokens) variables.emplace_back(name, jinja::Value::text(text));
  std::vector<jinja::Value> messages;
  for (const Message& message : conversation.messages) messages.push_back(message.value);
  variables.emplace_back("messages", jinja::Value::list(std::move(messages)));
  variables.emplace_back("add_generation_prompt", with_prompt);
  for (const char* name : {"tools", "documents"}) variables.emplace_back(name, jinja::None{});
  for (const auto& [name, value] : conversation.variables) {
    const auto known =
        std::find_if(variables.begin(), variables.end(), [&, &wanted = name](const auto& v) { return v.first == wanted; });
    if (known != variables.end()) {
      known->second = jinja::from_json(value);
    } else {
      variables.emplace_back(name, jinja::from_json(value));
    }
  }
  const std::vector<std::pair<std::string, jinja::Value>> given = variables;
  jinja::Rendering written = program_.render(std::move(variables), limits_for(conversation), day_);
  for (const auto& [name, value] : given) {
    if (name != "messages" && is_unread(value))
      throw DataError("it does not read " + in_quotes(name, 60) + " of the row; choose one that does");
  }
  return written;
}

/// Finds the text around an answer between two questions: what comes before its words both there and where it is to be written,
/// and what comes behind them both there and at the end.
void ChatWriter::probe() {
  constexpr const char *question = "Probe question", *answer = "Probe answer", *next = "Probe second question";
  const std::string whole = render(said({question, answer, next}), false).text.bytes,
                    ended = render(said({question, answer}), false).text.bytes,
                    asked = render(said({question}), false).text.bytes, begun = render(said({question}), true).text.bytes;
  const std::size_t first = whole.find(question), words = whole.find(answer), second = whole.find(next);
  const auto behind = [](const std::string& text, const char* what) {
    const std::size_t at = text.rfind(what);
    return at == std::string::npos ? std::string() : text.substr(at + std::string_view(what).size());
  };
  if (first == std::string::npos || words == std::string::npos || second == std::string::npos || first > words || words > second)
    throw DataError(in_quotes(whole));
  const std::size_t first_end = first + std::string_view(question).size(), words_end = words + std::string_view(answer).size();
  const std::string before = common_begin(behind(begun, question), std::string_view(whole).substr(first_end, words - first_end)),
                    tail = behind(asked, question);
  // Where nothing introduces an answer, it begins behind what ends the question.
  header_ = before.size() > tail.size() && before.starts_with(tail) ? before.substr(tail.size()) : before;
  const std::string after = common_begin(behind(ended, answer), std::string_view(whole).substr(words_end, second - words_end));
  const auto [begin, end] = jinja::stripped_range(after, nullptr, true, true);
  end_ = after.substr(begin, end - begin);
}

void ChatWriter::check_read(const Conversation& conversation, const jinja::Text& text, const std::string& place) const {
  std::vector<bool> written(conversation.messages.size());
  for (const jinja::Mark& mark : text.marks) written.at(static_cast<std::size_t>(mark.origin)) = true;
  for (std::size_t m = 0; m < written.size(); ++m) {
    const Message& message = conversation.messages[m];
    const std::string where = place + ", message " + std::to_string(m + 1);
    if (message.has_words && !written[m])
      throw DataError(where + " is of the role " + in_quotes(message.role, 40) + ", and the chat template " +
                      in_quotes(chat_.name) + " leaves it out; take it out of the conversation, or choose another template");
    const jinja::Dict& keys = *message.value.as_dict();
    for (std::size_t k = 0; k < keys.entries.size(); ++k) {
      const std::string& key = keys.entries[k].first;
      if (key == "role" || key == "content" || (k < keys.read.size() && keys.read[k])) continue;
      if (std::find(ignored_.begin(), ignored_.end(), key) != ignored_.end()) continue;
      throw DataError(where + " has " + in_quotes(key, 60) + ", which the chat template " + in_quotes(chat_.name) +
                      " does not read; choose one that does, or name it among the keys that are ignored (option ignore)");
    }
  }
}

Ranges ChatWriter::learnt_of(const Conversation& conversation, const jinja::Rendering& written) const {
  const std::string& text = written.text.bytes;
  if (learnt_.all) return {{0, text.size()}};
  const bool by_marks = program_.marks_generation() && learnt_.has("assistant");
  Ranges ranges = by_marks ? written.generated : Ranges();
  const std::vector<Stretch> stretches = stretches_of(written.text);
  std::size_t before = 0;  // where the stretch before has ended
  for (std::size_t s = 0; s < stretches.size(); ++s) {
    auto [begin, end, origin] = stretches[s];
    const std::string& role = conversation.messages[static_cast<std::size_t>(origin)].role;
    const std::size_t limit = s + 1 < stretches.size() ? stretches[s + 1].begin : text.size();
    if (role == "assistant" && !header_.empty()) {
      const std::size_t at = std::string_view(text).substr(0, begin).rfind(header_);
      if (at != std::string::npos && at >= before) begin = at + header_.size();
    }
    if (!end_.empty()) {
      const std::size_t at = std::string_view(text).substr(0, limit).find(end_, end);
      if (at != std::string::npos) end = at + end_.size();
    }
    before = end;
    if (learnt_.has(role) && !(by_marks && role == "assistant")) ranges.emplace_back(begin, end);
  }
  std::sort(ranges.begin(), ranges.end());
  Ranges joined;
  for (const auto& range : ranges) {
    if (!joined.empty() && range.first <= joined.back().second) {
      joined.back().second = std::max(joined.back().second, range.second);
    } else {
      joined.push_back(range);
    }
  }
  return joined;
}

WrittenChat ChatWriter::write(const Conversation& conversation, const std::string& place) const {
  try {
    const jinja::Rendering written = render(conversation, false);
    check_read(conversation, written.text, place);
    return {written.text.bytes, learnt_of(conversation, written)};
  } catch (const jinja::Refusal& refusal) {
    throw DataError(place + ": the chat template " + in_quotes(chat_.name) + " refuses it: " + printable(refusal.what()));
  } catch (const DataError& error) {
    const std::string what = error.what();
    if (what.starts_with(place)) throw;
    throw DataError(place + ": the chat template " + in_quotes(chat_.name) + ", " + what);
  }
}

std::string ChatWriter::prompt(const std::string& text) const {
  try {
    return render(said({text.c_str()}), true).text.bytes;
  } catch (const DataError& error) {
    throw DataError("the chat template " + in_quotes(chat_.name) + ": " + error.what());
  }
}

}  // namespace consist::records
