// A shell script's variables and the commands that it would run, without running any of them.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "launch/import/shell_words.h"

namespace consist::shell {

/// Stands in words for what is not known: arguments of the script, variables that it does not set, output of commands.
inline constexpr char unknown_mark = '\x1f';

class Script {
 public:
  using Words = std::vector<std::string>;

  /// `name` begins the messages of errors; `note` is told what is passed over: loops, conditions that are not known.
  Script(std::string name, std::function<void(const std::string&)> note) : name_(std::move(name)), note_(std::move(note)) {}

  /// Follows the script from its first command to its last, and calls `run` with the words of each that is no assignment. Throws
  /// as commands_of(), and DataError for values beyond 1 MiB.
  void follow(const std::string& text, const std::function<void(const Words&)>& run);

  /// All words of arrays, and of variables whose text begins with "--", in the order of their first assignment.
  Words words_of_variables() const;

 private:
  enum class Truth { no, yes, unknown };
  /// An `if`, a `case` or a loop that is open.
  struct Frame {
    enum class Kind { branches, cases, loop } kind = Kind::branches;
    bool outer = true;   ///< what surrounds it is followed
    bool done = false;   ///< a branch was followed
    bool active = true;  ///< this branch is followed
    std::string subject = {};
    bool awaits_pattern = false, matches = false;
  };

  bool follows() const { return frames_.empty() || (frames_.back().active && frames_.back().outer); }
  void read(Command command, const std::function<void(const Words&)>& run);
  bool take_reserved(Command& command);
  bool read_pattern(const Command& command);
  void match(const Words& patterns, bool last);
  void read_condition(const Words& words, const std::string& joined);
  void choose_branch();
  void take_assignments(Command& command);
  void set(const std::string& name, Words value, bool array);

  Truth truth_of(const Words& words) const;
  Words expand(const Word& word) const;
  Words expand_all(const std::vector<Word>& words, std::size_t from = 0) const;
  std::string expand_text(const std::string& text, int depth) const;
  std::string value_of(const std::string& expression, int depth) const;
  std::string arithmetic(const std::string& text, int depth) const;

  std::string name_;
  std::function<void(const std::string&)> note_;
  std::map<std::string, Words> variables_;  ///< plain ones have one word
  std::map<std::string, bool> is_array_;
  std::vector<std::string> order_;
  std::vector<Frame> frames_;
  bool in_condition_ = false;
  Truth condition_ = Truth::no;
  int condition_line_ = 0;
  mutable std::size_t expanded_ = 0;  ///< bytes of all expansions
};

}  // namespace consist::shell
