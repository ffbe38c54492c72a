// The readers of other trainers' files, which are Python (launch/python/consist/readers): starts them and takes their answer.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "consist/model.h"

namespace consist {

/// A file, and the command line that it is read beside.
struct ReaderRequest {
  std::string path;
  std::vector<std::string> replacements = {};       ///< "training.steps=7": values that stand in place of the file's
  std::map<std::string, std::string> given = {};    ///< "steps", "zero2.stage": what goes before the file
  std::optional<ModelSizes> sizes = std::nullopt;   ///< of the command line's model, if it gives one
  bool each_key = false;                            ///< notes have a line for each key
};

/// The answer: options that the file states, beside what the command line gives.
struct ReaderReply {
  std::string format;                                           ///< "torchtitan"
  std::vector<std::pair<std::string, std::string>> options = {};  ///< by name, in the order in which they are to be set
  std::set<std::string> stated = {};  ///< options of the file or its trainer's defaults, given ones included
  std::vector<std::string> notes = {};
};

/// Reads the file by Python: $CONSIST_PYTHON, else python3 of PATH. The same request is asked once in a process. Throws UsageError
/// for what the file asks and is not done here, and where there is no Python or it lacks a package; DataError for a file that
/// cannot be read; SystemError where the readers fail or take longer than a minute.
ReaderReply ask_readers(const ReaderRequest& request);

/// Becomes `python3 -m consist.readers WORDS...`: `consist import`. Returns only by what it throws, as ask_readers().
[[noreturn]] void become_import(const std::vector<std::string>& words);

}  // namespace consist
