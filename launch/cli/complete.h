// Completion of a command line: what a shell asks `consist complete` for.
#pragma once

#include <string>
#include <vector>

#include "launch/cli/command.h"

namespace consist::launch {

struct Completions {
  std::vector<std::string> words;  ///< whole words, in alphabetical order
  bool files = false;              ///< names of files besides; the shell knows them
  bool folders = false;            ///< names of folders besides
  bool open = false;               ///< a word goes on behind what is completed: "--zero2."
};

/// `words`: those behind `consist`, the last of which is being typed (it may be empty). Plugins are loaded as far as their
/// options or presets are asked for; one that cannot be used has none.
Completions complete(const std::vector<std::string>& words, CommandTable commands);

/// `words` as bash divides them, which makes a word of each '=': put together again. Sets `cut` to how many characters of the
/// last one bash takes for done.
std::vector<std::string> joined_words(const std::vector<std::string>& words, std::size_t& cut);

/// The script that makes a shell ask. Throws UsageError for a shell that is none of bash, zsh and fish.
std::string completion_script(const std::string& shell);

}  // namespace consist::launch
