// The page of a comparison: one HTML file that needs nothing else.
#pragma once

#include <string>
#include <string_view>
#include <vector>

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
  std::string path;                  ///< of the HTML file
  std::string title;                 ///< empty: models and the number of rows
  std::vector<std::string> command;  ///< that this is the report of, for the page; words
  bool configurations = true;        ///< whether rows may differ in more than their columns: they come from several commands
};

/// Throws UsageError if `path` names a folder, if its folder is missing, or if something is there that is no report and
/// `overwrite` is false: before the work is done that could not be shown.
void check_report_path(const std::string& path, bool overwrite);

/// Writes the page, whole or not at all. Throws SystemError, and DataError for archives that cannot be read at all.
void write_report(const ReportRequest& request, const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes);

}  // namespace consist::launch
