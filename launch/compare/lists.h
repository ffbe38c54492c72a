// Options of a comparison that may be given as lists, and the splitting of a list.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/plugin/host.h"

namespace consist::launch {

/// The rule by which an option's text is read.
enum class ListRule {
  single,   ///< one value, whatever it contains: names of files and folders, repeated options
  commas,   ///< A,B
  pluses,   ///< A,B, where commas of a value are written +: --recompute swiglu+rms_norm,full
  groups,   ///< text that may have commas of its own: several values only as [A],[B]
  keyed,    ///< KEY=A,B, or KEY=[A],[B] of JSON arrays, which keep their brackets: --deepspeed-set
  no_value  ///< a switch
};

/// The rule of `--name`; plugins' options by the kind that their tables state. Options that do not exist are `single`: they are
/// refused when the run is checked.
ListRule list_rule(const std::string& name, PluginHost& host);

/// An option's values: as the table shows them and as `consist train` takes them.
struct Listed {
  std::string name;  ///< as the table calls it; of a DeepSpeed key its last part
  std::vector<std::pair<std::string, std::string>> values;
};

/// Throws UsageError for an empty entry or one that occurs twice.
Listed read_list(const std::string& name, const std::string& text, ListRule rule);

}  // namespace consist::launch
