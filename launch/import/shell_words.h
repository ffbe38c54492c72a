// A shell script's commands as words, without running any of them.
#pragma once

#include <string>
#include <vector>

namespace consist::shell {

/// A word in parts: literal text, and text in which $NAME is to be expanded.
struct Part {
  std::string text;
  bool expands = false;  ///< has expansions, unless it stood in single quotes or behind a backslash
  bool quoted = false;   ///< its expansion is not split at blanks
};
using Word = std::vector<Part>;

struct Command {
  std::vector<Word> words;
  int line = 0;
  /// NAME=( ... ) and NAME+=( ... ): the array's elements are `words`.
  std::string array = {};
  bool appends = false;
  std::string joined = {};    ///< the operator in front of it: "||", "&&", ";;", ";", "|", "&" or none
  bool ends_pattern = false;  ///< ")" follows: of `case`
};

/// The commands of `text` in order: those of several lines, of pipes and lists one by one. Reserved words (if, then, fi, ...)
/// begin commands like others. Remarks, redirections and here-documents are passed over. Throws DataError that begins with `name`
/// for quotes that are not closed and for more than 100,000 words.
std::vector<Command> commands_of(const std::string& text, const std::string& name);

}  // namespace consist::shell
