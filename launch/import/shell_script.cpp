#include "launch/import/shell_script.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <optional>

#include "consist/error.h"
#include "consist/text.h"
#include "launch/import/shell_arithmetic.h"

namespace consist::shell {
namespace {

constexpr std::size_t most_expanded = std::size_t{16} << 20;
constexpr std::size_t most_bytes = std::size_t{1} << 20;
constexpr int most_depth = 16;
const std::string unknown(1, unknown_mark);

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

std::string without_unknown(std::string text) {
  std::erase(text, unknown_mark);
  return text;
}

}  // namespace

void Script::follow(const std::string& text, const std::function<void(const Words&)>& run) {
  for (const Command& command : commands_of(text, name_)) read(command, run);
}

void Script::read(Command command, const std::function<void(const Words&)>& run) {
  if (read_pattern(command)) return;
  if (!command.array.empty()) {
    if (in_condition_ || !follows()) return;
    Words words = expand_all(command.words);
    if (command.appends && is_array_.contains(command.array) && is_array_.at(command.array))
      words.insert(words.begin(), variables_[command.array].begin(), variables_[command.array].end());
    return set(command.array, std::move(words), true);
  }
  while (!command.words.empty() && take_reserved(command)) {
  }
  if (command.words.empty()) return;
  if (in_condition_) return read_condition(expand_all(command.words), command.joined);
  if (!follows()) return;
  take_assignments(command);
  if (const Words words = expand_all(command.words); !words.empty()) run(words);
}

/// Takes away the first word if it is one of those that branches and loops are made of; with it what only belongs to it.
bool Script::take_reserved(Command& command) {
  const Word& first = command.words.front();
  if (first.size() != 1 || first[0].quoted) return false;
  const std::string word = first[0].text;
  if (word == "if" || word == "elif") {
    if (word == "if") frames_.push_back({.outer = follows(), .active = false});
    in_condition_ = true;
    condition_ = Truth::no;
    condition_line_ = command.line;
    command.joined.clear();
  } else if (word == "then" && in_condition_) {
    choose_branch();
  } else if (word == "else" && !frames_.empty()) {
    frames_.back().active = !frames_.back().done;
  } else if (word == "fi" || word == "esac" || word == "done") {
    if (!frames_.empty()) frames_.pop_back();
    command.words.clear();
    return true;
  } else if (word == "for" || word == "while" || word == "until") {
    if (follows()) note_("line " + std::to_string(command.line) + ": a loop is passed over");
    frames_.push_back({.kind = Frame::Kind::loop, .outer = follows(), .active = false});
    command.words.clear();
    return true;
  } else if (word == "case" && command.words.size() >= 2) {
    const Words words = expand_all(command.words, 1);
    frames_.push_back({.kind = Frame::Kind::cases,
                       .outer = follows(),
                       .active = false,
                       .subject = without_unknown(words.empty() ? "" : words[0])});
    frames_.back().awaits_pattern = true;
    if (words.size() > 2) match({words.begin() + 2, words.end()}, command.ends_pattern);
    command.words.clear();
    return true;
  } else if (word != "do" && word != "{" && word != "}" && word != "function" && word != "export" && word != "local" &&
             word != "readonly" && word != "declare" && word != "time") {
    return false;
  }
  if (frames_.size() > most_depth)
    throw DataError(name_ + ", line " + std::to_string(command.line) + ": branches are nested deeper than " +
                    std::to_string(most_depth) + " levels");
  command.words.erase(command.words.begin());
  return true;
}

/// Returns true if the command is a pattern of `case`, and matches it then.
bool Script::read_pattern(const Command& command) {
  if (frames_.empty() || frames_.back().kind != Frame::Kind::cases) return false;
  Frame& frame = frames_.back();
  if (command.joined == ";;") frame.awaits_pattern = true;
  if (!frame.awaits_pattern) return false;
  const Words words = expand_all(command.words);
  if (!words.empty() && words.front() == "esac") return false;
  match(words, command.ends_pattern);
  return true;
}

void Script::match(const Words& patterns, bool last) {
  Frame& frame = frames_.back();
  for (const std::string& pattern : patterns) frame.matches = frame.matches || pattern == "*" || pattern == frame.subject;
  if (!last) return;
  frame.active = frame.matches && !frame.done;
  frame.done = frame.done || frame.active;
  frame.matches = frame.awaits_pattern = false;
}

void Script::read_condition(const Words& words, const std::string& joined) {
  const Truth one = truth_of(words);
  if (joined == "||") {
    condition_ = condition_ == Truth::yes || one == Truth::yes ? Truth::yes : std::max(condition_, one);
  } else if (joined == "&&") {
    condition_ = condition_ == Truth::no || one == Truth::no ? Truth::no : std::max(condition_, one);
  } else {
    condition_ = one;
  }
}

void Script::choose_branch() {
  in_condition_ = false;
  if (frames_.empty()) return;
  Frame& frame = frames_.back();
  if (condition_ == Truth::unknown && frame.outer)
    note_("line " + std::to_string(condition_line_) +
          ": a condition cannot be known without running the script; its branch is not followed");
  frame.active = !frame.done && condition_ == Truth::yes;
  frame.done = frame.done || frame.active;
}

/// NAME=VALUE and NAME+=VALUE in front of a command, or alone.
void Script::take_assignments(Command& command) {
  while (!command.words.empty()) {
    Word word = command.words.front();
    if (word.empty() || word[0].quoted) return;
    const std::size_t equals = word[0].text.find('=');
    if (equals == std::string::npos || equals == 0) return;
    std::string name = word[0].text.substr(0, equals);
    const bool appends = name.ends_with('+');
    if (appends) name.pop_back();
    if (name.empty() || !std::all_of(name.begin(), name.end(), is_name_character)) return;
    word[0].text.erase(0, equals + 1);
    std::string value = appends && !variables_[name].empty() ? variables_[name].front() : "";
    for (const Part& part : word) value += part.expands ? expand_text(part.text, 0) : part.text;
    set(name, {value}, false);
    command.words.erase(command.words.begin());
  }
}

void Script::set(const std::string& name, Words value, bool array) {
  std::size_t bytes = 0;
  for (const std::string& word : value) bytes += word.size();
  if (bytes > most_bytes) throw DataError(name_ + ": the variable " + in_quotes(name) + " is larger than 1 MiB");
  if (!is_array_.contains(name)) order_.push_back(name);
  variables_[name] = std::move(value);
  is_array_[name] = array;
}

Script::Truth Script::truth_of(const Words& given) const {
  Words words;
  for (const std::string& word : given) {
    if (word != "[" && word != "[[" && word != "]" && word != "]]" && word != "test") words.push_back(without_unknown(word));
  }
  bool wanted = true;
  while (!words.empty() && words.front() == "!") {
    wanted = !wanted;
    words.erase(words.begin());
  }
  const auto known = [&](bool value) { return value == wanted ? Truth::yes : Truth::no; };
  if (words.size() == 1 && words[0] != "-z" && words[0] != "-n" && (given.front() == "[" || given.front() == "[["))
    return known(!words[0].empty());
  if (words.size() <= 2 && !words.empty() && (words[0] == "-z" || words[0] == "-n"))
    return known((words.size() == 1 || words[1].empty()) == (words[0] == "-z"));
  if (words.size() != 3) return Truth::unknown;
  if (words[1] == "==" || words[1] == "=") return known(words[0] == words[2]);
  if (words[1] == "!=") return known(words[0] != words[2]);
  const std::optional<std::int64_t> left = whole(words[0]), right = whole(words[2]);
  if (!left || !right) return Truth::unknown;
  if (words[1] == "-eq") return known(*left == *right);
  if (words[1] == "-ne") return known(*left != *right);
  if (words[1] == "-gt") return known(*left > *right);
  if (words[1] == "-ge") return known(*left >= *right);
  if (words[1] == "-lt") return known(*left < *right);
  if (words[1] == "-le") return known(*left <= *right);
  return Truth::unknown;
}

Script::Words Script::expand_all(const std::vector<Word>& words, std::size_t from) const {
  Words all;
  std::size_t bytes = 0;
  for (std::size_t n = from; n < words.size(); ++n) {
    for (std::string& word : expand(words[n])) {
      bytes += word.size() + 1;
      if (bytes > most_bytes) throw DataError(name_ + ": a command is larger than 1 MiB");
      all.push_back(std::move(word));
    }
  }
  return all;
}

/// A word as the words that it becomes: expansions that are not quoted fall apart at blanks.
Script::Words Script::expand(const Word& word) const {
  Words made;
  bool open = false;  // the last word goes on
  const auto add = [&](const std::string& text) {
    if (open)
      made.back() += text;
    else
      made.push_back(text);
    open = true;
  };
  for (const Part& part : word) {
    if (!part.expands) {
      add(part.text);
      continue;
    }
    const std::string value = expand_text(part.text, 0);
    if (part.quoted && part.text.find("[@]") == std::string::npos) {
      add(value);
      continue;
    }
    const bool all_literal = part.text.find_first_of("$`") == std::string::npos;
    if (all_literal) {
      add(value);
      continue;
    }
    for (std::size_t at = 0; at < value.size();) {
      const bool blank = std::isspace(static_cast<unsigned char>(value[at])) != 0;
      std::size_t end = at;
      while (end < value.size() && (std::isspace(static_cast<unsigned char>(value[end])) != 0) == blank) ++end;
      if (blank)
        open = false;
      else
        add(value.substr(at, end - at));
      at = end;
    }
  }
  return made;
}

std::string Script::expand_text(const std::string& text, int depth) const {
  if (depth > most_depth)
    throw DataError(name_ + ": expansions are nested deeper than " + std::to_string(most_depth) + " levels");
  std::string result;
  expanded_ += text.size();
  for (std::size_t at = 0; at < text.size();) {
    if (expanded_ + result.size() > most_expanded) throw DataError(name_ + ": its variables unfold to more than 16 MiB");
    const char c = text[at];
    if (c == '`') {
      const std::size_t end = text.find('`', at + 1);
      result += unknown;
      at = end == std::string::npos ? text.size() : end + 1;
      continue;
    }
    if (c != '$' || at + 1 == text.size()) {
      result += c;
      ++at;
      continue;
    }
    const char open = text[at + 1];
    if (open == '{' || open == '(') {
      const char close = open == '{' ? '}' : ')';
      int level = 0;
      std::size_t end = at + 1;
      do {
        if (text[end] == open) ++level;
        if (text[end] == close) --level;
        ++end;
      } while (level > 0 && end < text.size());
      const std::string inner = text.substr(at + 2, end - at - 3);
      if (open == '{') {
        result += value_of(inner, depth + 1);
      } else {
        result +=
            inner.starts_with('(') && inner.ends_with(')') ? arithmetic(inner.substr(1, inner.size() - 2), depth + 1) : unknown;
      }
      at = end;
      continue;
    }
    std::size_t end = at + 1;
    while (end < text.size() && is_name_character(text[end])) ++end;
    if (end == at + 1) {
      const bool special = std::string("@*#?!$-").find(open) != std::string::npos;
      result += special ? unknown : "$";
      at += special ? 2 : 1;
      continue;
    }
    result += value_of(text.substr(at + 1, end - at - 1), depth + 1);
    at = end;
  }
  expanded_ += result.size();
  return result;
}

/// Value of the expression within ${...}.
std::string Script::value_of(const std::string& expression, int depth) const {
  std::size_t end = 0;
  while (end < expression.size() && is_name_character(expression[end])) ++end;
  const std::string name = expression.substr(0, end);
  std::string rest = expression.substr(end);
  const auto found = variables_.find(name);
  if (rest == "[@]" || rest == "[*]") rest.clear();
  if (rest.empty()) {
    if (found == variables_.end()) return unknown;
    std::string joined;
    for (const std::string& word : found->second) {
      joined += (joined.empty() ? "" : " ") + word;
      if (joined.size() > most_bytes) throw DataError(name_ + ": a value is larger than 1 MiB");
    }
    return joined;
  }
  const bool or_empty = rest.starts_with(":-") || rest.starts_with(":=");
  if (or_empty || rest.starts_with('-') || rest.starts_with('=')) {
    const bool empty = found == variables_.end() || (or_empty && (found->second.empty() || found->second.front().empty()));
    if (!empty) return value_of(name, depth + 1);
    std::string fallback = rest.substr(or_empty ? 2 : 1);
    if (fallback.size() >= 2 && (fallback[0] == '"' || fallback[0] == '\'') && fallback.back() == fallback[0])
      fallback = fallback.substr(1, fallback.size() - 2);
    return expand_text(fallback, depth + 1);
  }
  return unknown;
}

std::string Script::arithmetic(const std::string& text, int depth) const {
  std::string numbers;
  for (std::size_t at = 0; at < text.size();) {
    const bool begins = is_name_character(text[at]) && std::isdigit(static_cast<unsigned char>(text[at])) == 0 &&
                        (at == 0 || (text[at - 1] != '$' && text[at - 1] != '{'));
    if (!begins) {
      numbers += text[at++];
      continue;
    }
    std::size_t end = at;
    while (end < text.size() && is_name_character(text[end])) ++end;
    numbers += "$" + text.substr(at, end - at);
    at = end;
  }
  const std::string expanded = expand_text(numbers, depth + 1);
  const std::optional<std::int64_t> value = Arithmetic(expanded).value();
  return value ? std::to_string(*value) : unknown;
}

Script::Words Script::words_of_variables() const {
  Words all;
  for (const std::string& name : order_) {
    const Words& words = variables_.at(name);
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
    const std::size_t begin = text.find_first_not_of(" \t\n\r");
    if (begin == std::string::npos || text.compare(begin, 2, "--") != 0) continue;
    for (std::size_t at = begin; at < text.size();) {
      const std::size_t end = std::min(text.find_first_of(" \t\n\r", at), text.size());
      if (end > at) all.push_back(text.substr(at, end - at));
      at = end + 1;
    }
  }
  return all;
}

}  // namespace consist::shell
