#include "launch/import/shell_words.h"

#include <cctype>

#include "consist/error.h"

namespace consist::shell {
namespace {

constexpr std::size_t most_words = 100'000;

bool is_name(const std::string& text) {
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text[0])) != 0) return false;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_') return false;
  }
  return true;
}

class Lexer {
 public:
  Lexer(const std::string& text, std::string name) : text_(text), name_(std::move(name)) {}

  std::vector<Command> run() {
    while (at_ < text_.size()) step();
    end_command();
    return std::move(commands_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw DataError(name_ + ", line " + std::to_string(line_) + ": " + why);
  }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  char take() {
    if (text_[at_] == '\n') ++line_;
    return text_[at_++];
  }

  void step() {
    const char c = peek();
    if (c == '\\' && (peek(1) == '\n' || (peek(1) == '\r' && peek(2) == '\n'))) {
      while (take() != '\n') {
      }
    } else if (c == ' ' || c == '\t' || c == '\r') {
      take();
      end_word();
    } else if (c == '\n') {
      end_word();
      if (!in_array_) end_command();
      take();
      skip_documents();
    } else if (c == '#' && !in_word_) {
      while (at_ < text_.size() && peek() != '\n') take();
    } else if (c == ';' || c == '|' || (c == '&' && peek(1) != '>')) {
      end_word();
      if (!in_array_) end_command();
      joined_ = std::string(1, take());
      if (peek() == c) joined_ += take();
    } else if (c == '<' || c == '>') {
      skip_redirection();
    } else if (c == '(') {
      open_parenthesis();
    } else if (c == ')') {
      take();
      end_word();
      command_.ends_pattern = !in_array_;
      end_command();
      in_array_ = false;
    } else {
      read_piece();
    }
  }

  /// NAME=( and NAME+=( begin an array; another parenthesis is a word of its own: a subshell or a function.
  void open_parenthesis() {
    take();
    if (in_word_ && word_.size() == 1 && word_[0].text.ends_with('=')) {
      std::string array = word_[0].text.substr(0, word_[0].text.size() - 1);
      const bool appends = array.ends_with('+');
      if (appends) array.pop_back();
      if (is_name(array)) {
        word_.clear();
        in_word_ = false;
        end_command();
        command_.line = line_;
        command_.array = array;
        command_.appends = appends;
        in_array_ = true;
        return;
      }
    }
    end_word();
    end_command();
  }

  void skip_redirection() {
    end_word();
    const bool document = peek() == '<' && peek(1) == '<' && peek(2) != '<';
    while (peek() == '<' || peek() == '>' || peek() == '&' || peek() == '-') take();
    while (peek() == ' ' || peek() == '\t') take();
    std::string target;
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(peek())) == 0 && peek() != ';' && peek() != ')')
      target += take();
    if (!document) return;
    std::string end;
    for (const char c : target) {
      if (c != '"' && c != '\'' && c != '\\') end += c;
    }
    documents_.push_back(end);
  }

  /// Behind the line that has announced them.
  void skip_documents() {
    for (const std::string& end : documents_) {
      while (at_ < text_.size()) {
        std::string line;
        while (at_ < text_.size() && peek() != '\n') line += take();
        if (at_ < text_.size()) take();
        const std::size_t begin = line.find_first_not_of('\t');
        if (begin != std::string::npos && line.substr(begin) == end) break;
      }
    }
    documents_.clear();
  }

  void append(const std::string& text, bool expands, bool quoted) {
    in_word_ = true;
    if (!word_.empty() && word_.back().expands == expands && word_.back().quoted == quoted) {
      word_.back().text += text;
    } else {
      word_.push_back({text, expands, quoted});
    }
  }

  void read_piece() {
    const char c = peek();
    if (c == '\'') {
      take();
      std::string text;
      while (at_ < text_.size() && peek() != '\'') text += take();
      if (at_ == text_.size()) refuse("a ' is not closed");
      take();
      append(text, false, true);
    } else if (c == '"') {
      take();
      std::string text;
      while (at_ < text_.size() && peek() != '"') {
        if (peek() == '\\' && peek(1) == '\n') {
          take();
          take();
        } else if (peek() == '\\' && (peek(1) == '"' || peek(1) == '\\' || peek(1) == '$' || peek(1) == '`')) {
          append(text, true, true);
          text.clear();
          take();
          append(std::string(1, take()), false, true);
        } else if (peek() == '$') {
          text += expansion();
        } else {
          text += take();
        }
      }
      if (at_ == text_.size()) refuse("a \" is not closed");
      take();
      append(text, true, true);
    } else if (c == '\\') {
      take();
      if (at_ < text_.size()) append(std::string(1, take()), false, true);
    } else if (c == '$') {
      append(expansion(), true, false);
    } else if (c == '`') {
      std::string text(1, take());
      while (at_ < text_.size() && peek() != '`') text += take();
      if (at_ < text_.size()) text += take();
      append(text, true, false);
    } else {
      append(std::string(1, take()), true, false);
    }
  }

  /// "$NAME", "${...}", "$(...)" or "$((...))" as it stands, its brackets matched.
  std::string expansion() {
    std::string text(1, take());
    const char open = peek();
    if (open != '{' && open != '(') return text;
    const char close = open == '{' ? '}' : ')';
    int depth = 0;
    do {
      if (at_ == text_.size()) refuse(std::string("a $") + open + " is not closed");
      const char c = take();
      text += c;
      if (c == open) ++depth;
      if (c == close) --depth;
    } while (depth > 0);
    return text;
  }

  void end_word() {
    if (!in_word_) return;
    if (++words_ > most_words) refuse("there are more than " + std::to_string(most_words) + " words");
    if (command_.words.empty() && !in_array_) command_.line = line_;
    command_.words.push_back(std::move(word_));
    word_.clear();
    in_word_ = false;
  }
  void end_command() {
    end_word();
    if (!command_.words.empty() || !command_.array.empty()) {
      command_.joined = std::move(joined_);
      joined_.clear();
      commands_.push_back(std::move(command_));
    }
    command_ = {};
  }

  const std::string& text_;
  std::string name_;
  std::size_t at_ = 0, words_ = 0;
  int line_ = 1;
  bool in_word_ = false, in_array_ = false;
  Word word_;
  std::string joined_;
  Command command_;
  std::vector<Command> commands_;
  std::vector<std::string> documents_;  ///< the ends of here-documents whose line is not over
};

}  // namespace

std::vector<Command> commands_of(const std::string& text, const std::string& name) {
  return Lexer(text, name).run();
}

}  // namespace consist::shell
