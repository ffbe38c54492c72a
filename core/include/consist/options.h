// Options of plugins: a table of constants, so that they can be read, listed and checked without running the plugin.
// Option `bucket-size` of plugin `ddp` is `--ddp.bucket-size` on the command line and in the archive.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "consist/export.h"

namespace consist {

enum class OptionKind : std::uint32_t {
  flag,     ///< "true" or "false"; on the command line the bare name means true
  integer,  ///< 64-bit, decimal
  real,
  bytes,  ///< an integer with an optional suffix k, M, G, Ki, Mi, Gi
  text,
  choice,  ///< one of `choices`
};

/// The reason why an archive or a checkpoint, which may come from somebody else, may not set an option.
enum class OptionRole : std::uint32_t {
  setting,  ///< no reason: --config run.h5 takes it over
  code,     ///< it names code that is loaded or executed: a library, a plugin, a program
  results,  ///< it says where something is written, or that something may be replaced
};

/// One row of a plugin's table. All strings are literals of the plugin and never null.
struct OptionSpec {
  const char* name;  ///< lower case, words joined by '-', tables by '.': "offload-optimizer.device"; `consist check` refuses '_'
  OptionKind kind;
  const char* fallback;  ///< the default, as text; must itself be legal. Empty for a number: without a value, Options::has() is false
  const char* help;      ///< one line, with the unit
  /// Legal values: for a choice "a|b|c", for a number its range "1..", "0..1", or "0..<1" without the upper end. Empty: all.
  const char* choices = "";
  /// The value that another option of the same table must have for this one to have an effect: "schedule=interleaved",
  /// "device=cpu|host". Empty: it always has an effect. A run that is given an option without effect says so.
  const char* needs = "";
  /// Values among which `consist tune` chooses if the user gives none, the default among them: "10Mi|25Mi|100Mi". They may change
  /// results by the order of sums or, for a precision, by rounding, and by nothing else. "divisors(layers)", and "1 beside
  /// stages" for a default of its own, depend on the run (docs/plugins.md). Empty: not searched. The host refuses a plugin whose
  /// values are not legal.
  const char* tunable = "";
  /// Options of the roles code and results are set by the user alone, never by an archive or a checkpoint.
  OptionRole role = OptionRole::setting;
};

/// Values for the options of one plugin: every option of its table has a checked value. Copyable.
class CONSIST_API Options {
 public:
  Options() = default;
  explicit Options(std::string owner) : owner_(std::move(owner)) {}

  /// Checks `value` against the spec and stores it. Throws UsageError naming --<owner>.<name>, the value and what is legal.
  void set(const OptionSpec& spec, std::string_view value);
  /// Stores the spec's default.
  void set_fallback(const OptionSpec& spec);

  /// True if the option has a value; false only for a number whose default is empty and that was not given.
  bool has(std::string_view name) const { return !raw(name).empty(); }
  /// Each throws Error if the option is not in the table or of another kind: a bug in the plugin.
  bool flag(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;  ///< of kinds integer and bytes
  double real(std::string_view name) const;
  const std::string& text(std::string_view name) const;  ///< of kinds text and choice

  const std::map<std::string, std::string, std::less<>>& all() const noexcept { return values_; }

 private:
  const std::string& raw(std::string_view name) const;
  std::string owner_;
  std::map<std::string, std::string, std::less<>> values_;  // normalised text
};

/// Parses "25M", "512Ki", "1000" into bytes (k, M, G are powers of 1000; Ki, Mi, Gi of 1024). Throws UsageError.
CONSIST_API std::int64_t parse_bytes(std::string_view text);

}  // namespace consist
