// The rows of a comparison: the cross product of listed values.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/plugin/host.h"
#include "launch/compare/lists.h"

namespace consist::launch {

/// Shown in a row for an option that its configuration does not have: --zero2.stage beside --strategy ddp.
inline constexpr const char* no_such_option = "-";

/// One configuration.
struct CompareRow {
  /// Option and value, of every option that is listed with several values, and the model; of deepspeed-set the key's last name.
  std::vector<std::pair<std::string, std::string>> varied;
  std::vector<std::string> arguments;  ///< for `consist train`, without the archive
  std::string label;                   ///< unique; also the archive's file name
};

/// By name, without dashes, how an option's text is read (list_rule() of the plugins in use).
using ListRules = std::function<ListRule(const std::string&)>;

/// Expands every listed option of `arguments` (those of train), and labels the rows. Throws UsageError for an empty entry, one
/// that is listed twice, and values that would give two rows the same label.
std::vector<CompareRow> expand_rows(const std::vector<std::string>& arguments, const ListRules& rules);

/// Takes the options of the plugin `owner` ("--owner.option VALUE") out of a row; where they are listed, the row shows "-".
void leave_out_options_of(const std::string& owner, CompareRow& row);

/// Labels rows anew after options were left out; of rows that have become the same one is kept. Throws what expand_rows throws.
void label_rows(std::vector<CompareRow>& rows);

/// The label of a row's repeat, counted from 1: "llama-tiny_fp32", "llama-tiny_fp32.repeat2".
std::string label_of_repeat(const CompareRow& row, int repeat);

}  // namespace consist::launch
