// The table of a run's options: from it come the command line, its help, configuration files, the sweeps of compare and what an
// archive says of the configuration. Options of plugins have the same rows (OptionSpec) in their plugins.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "consist/export.h"
#include "consist/options.h"
#include "core/config/run_config.h"

namespace consist {

/// Rule by which compare reads an option's text as a list.
enum class Sweep {
  commas,  ///< A,B
  pluses,  ///< A,B, where commas of a value are written +: --recompute swiglu+rms_norm,full
  groups,  ///< text that may have commas of its own: several values only as [A],[B]
  keyed,   ///< KEY=A,B, or KEY=[A],[B] of JSON arrays, which keep their brackets: --deepspeed-set
  none,    ///< one value, whatever it contains: names of files and folders, repeated options
};

enum class OptionGroup { configuration, training, results };
CONSIST_API const char* title_of(OptionGroup group) noexcept;

/// Kinds of what an option decides, by which the core and commands ask whether it counts for them.
enum class OptionScope {
  program,  ///< what is compiled and how weights are updated: parts, sizes, ranks
  data,     ///< what a run reads and for how long: data, initial values, rates, evaluations
  place,    ///< where something lies and whether it may be replaced: archives, checkpoints, files that give other options
  limit,    ///< how much a run may take: memory, time, checkpoints that are kept
  display,  ///< what is shown and measured beside: samples, prices, profiles
};

/// A row of a table of options: of a run's, or of a command's own. RunOption::spec.needs is the name of the run's option without
/// which this one has no effect.
struct RunOption {
  OptionSpec spec;
  const char* value = "";  ///< what the help calls it: "FILE"; empty for a switch, whose bare name means true
  OptionGroup group = OptionGroup::configuration;
  OptionScope scope = OptionScope::place;
  Sweep sweep = Sweep::commas;
  bool repeats = false;  ///< may be given several times
  /// Where it stands in a RunConfig; null for what says where other values come from. `text` is a legal_value().
  void (*set)(RunConfig& config, const std::string& text) = nullptr;
  nlohmann::ordered_json (*get)(const RunConfig& config) = nullptr;
  bool archived = true;  ///< in RunConfig::to_json(), under the name with '_' for '-'
  /// The default says that there is no such value, which `choices` need not allow: files may state it, nobody gives it.
  bool unset_by_default = false;
  bool takes_several = false;  ///< `value` stands for one word or more; it repeats
  char letter = '\0';          ///< its short name, -o

  bool is_switch() const noexcept { return *value == '\0'; }
  /// True if the value `text` of the option means the same as leaving the option out.
  bool is_unset(std::string_view text) const noexcept { return text == spec.fallback && (unset_by_default || text.empty()); }
};

/// All of them, in the order of the help.
CONSIST_API std::span<const RunOption> run_option_table();
/// By name; null if there is none.
CONSIST_API const RunOption* find_run_option(std::string_view name) noexcept;

/// True if the option is a file or folder that each run writes, and that its archive states: --checkpoint, --export, --trace.
CONSIST_API bool is_place_of_results(const RunOption& option) noexcept;

/// True if the option changes nothing in what is trained, how fast or how far: a place, a limit or what is shown.
CONSIST_API bool is_beside_training(const RunOption& option) noexcept;

/// The option's value in a configuration as text: what legal_value() makes of it. Empty for one that has none (get() is null).
CONSIST_API std::string text_in(const RunConfig& config, const RunOption& option);

/// Sets the option. Throws UsageError, as legal_value(); `said` names the option in messages.
CONSIST_API void set_option(RunConfig& config, const RunOption& option, std::string_view value, const std::string& said);

/// Rows as a help text: groups with their titles, short rows side by side, at most `columns` wide.
CONSIST_API std::string help_text(std::span<const RunOption> options, std::size_t columns = 120);

}  // namespace consist
