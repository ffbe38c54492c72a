// Goes over the keys of a file by a table of rules.
#pragma once

#include <string>

#include "launch/import/common/key_rules.h"
#include "launch/import/common/target.h"

namespace consist::readers {

/// A reader of one format: what its rules do not say, it says in read_own().
class KeyReader {
 public:
  explicit KeyReader(Target& target) : target_(target) {}
  virtual ~KeyReader() = default;
  KeyReader(const KeyReader&) = delete;
  KeyReader& operator=(const KeyReader&) = delete;

 protected:
  /// Visits all keys, then runs the steps that need several of them. Throws UsageError with all refusals of the keys, or, if
  /// there are none, with all of the steps.
  void read_all(const Json& root, const std::vector<std::function<void()>>& steps);
  /// Every key of `object`, each with the rule of its path; a key that has none and is no remark is refused.
  void visit(const Json& object, const std::string& prefix);
  virtual void apply(const KeyRule& rule, const std::string& key, const Json& value);
  virtual void read_own(const std::string& key, const Json& value) = 0;
  /// Null if there is none.
  virtual const KeyRule* rule_of(const std::string& key) const = 0;

  Target& target_;
  RunConfig& config_ = target_.config;

 private:
  std::string how_to_leave_out(const std::string& key) const;
  void read_only_value(const KeyRule& rule, const std::string& key, const Json& value);
};

/// null is how files say that a key is not there: takes such keys out of the object, with a note about each.
void drop_nulls(Json& object, const std::string& prefix, Target& target);

/// The value at outer.inner; null if it is not there.
const Json* find_value(const Json& root, const char* outer, const char* inner);
const Json* find_value(const Json& root, const char* key);

/// Puts the value of each "a.b=VALUE" where the tree has, or would have, a.b. As in JSON; what is no JSON is a string. Throws
/// UsageError for another form, and where no object could hold the key.
void replace_values(const std::vector<std::string>& replacements, Json& root, Target& target);

}  // namespace consist::readers
