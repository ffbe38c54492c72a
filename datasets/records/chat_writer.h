// Writes conversations by a chat template, and says which of it each role says.
#pragma once

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "datasets/jinja/template.h"
#include "datasets/records/chat_template.h"
#include "datasets/records/messages.h"

namespace consist::records {

struct Conversation {
  std::vector<Message> messages;
  /// Other variables of the template: "tools", and what the row names for it.
  std::vector<std::pair<std::string, nlohmann::ordered_json>> variables;
};

struct WrittenChat {
  using Ranges = std::vector<std::pair<std::size_t, std::size_t>>;
  std::string text;
  Ranges learnt;  ///< bytes, in order, without overlaps
};

/// The learnt words of a conversation: those of these roles, and what ends their turn.
struct LearntRoles {
  bool all = false;
  std::vector<std::string> roles;
  bool has(const std::string& role) const;
};

/// Immutable; write() may be called from several threads.
class ChatWriter {
 public:
  /// `ignored`: keys of messages that the template need not read. `day`: what strftime_now() says, if anything. Throws DataError
  /// that begins with the template's name if its program is wrong, or if it cannot be told where in it a role's words begin and
  /// end.
  ChatWriter(ChatTemplate chat, LearntRoles learnt, std::vector<std::string> ignored, std::optional<std::tm> day);

  const ChatTemplate& chat() const { return chat_; }
  /// Throws DataError that begins with `place` for what the template refuses, leaves out or does not read.
  WrittenChat write(const Conversation& conversation, const std::string& place) const;
  /// A text as a user's message, up to where the answer begins.
  std::string prompt(const std::string& text) const;
  /// Text that ends an answer: "<|im_end|>". Empty: nothing.
  const std::string& end() const { return end_; }

 private:
  jinja::Rendering render(const Conversation& conversation, bool with_prompt) const;
  void probe();
  void check_read(const Conversation& conversation, const jinja::Text& text, const std::string& place) const;
  WrittenChat::Ranges learnt_of(const Conversation& conversation, const jinja::Rendering& written) const;

  ChatTemplate chat_;
  jinja::Template program_;
  LearntRoles learnt_;
  std::vector<std::string> ignored_;
  std::optional<std::tm> day_;
  std::string header_, end_;  ///< in front of and behind an answer's words, as probe() finds them
};

}  // namespace consist::records
