// The page of a comparison: one HTML file that needs nothing else.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "consist/files.h"
#include "launch/compare/outcome.h"
#include "launch/compare/rows.h"

namespace consist::launch {

/// A file that the executable holds: the page's own, and those of packages.
struct PageText {
  std::string_view name, text;
};
/// Written at build time (launch/CMakeLists.txt).
const std::vector<PageText>& page_texts();

struct ReportRequest {
  Output output;                     ///< the HTML file
  std::string title;                 ///< empty: models and the number of rows
  std::vector<std::string> command;  ///< that this is the report of, for the page; words
  bool configurations = true;        ///< whether rows may differ in more than their columns: they come from several commands
};

/// The page as an output of the option: a report replaces an earlier one.
Output report_output(const std::string& option, const std::string& path, bool overwrite);

/// Fails before the work whose report could not be written. Throws as check_output(), and UnavailableError without reports.
void check_report(const Output& output);

/// Writes the page. Throws as write_output(), and DataError for archives that cannot be read at all.
void write_report(const ReportRequest& request, const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes);

}  // namespace consist::launch
