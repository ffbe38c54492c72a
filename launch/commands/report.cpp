// consist report: what archives say, as one HTML page.
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "consist/error.h"
#include "consist/text.h"
#include "launch/commands/commands.h"
#include "launch/compare/joined.h"
#include "launch/view/report/page.h"

namespace consist::commands {
namespace {

constexpr RunOption report_options[] = {
    with_letter('o', valued("output", OptionKind::text, "report.html", "FILE", "the page; an earlier report there is replaced")),
    valued("title", OptionKind::text, "", "TEXT", "its title; left out: the models and the number of rows"),
    a_switch("overwrite", "replace a file that is no report, too"),
};

int report(const CommandLine& line) {
  if (line.operands.empty())
    throw UsageError("consist report needs the archive of a run or a comparison; see consist report --help");
  const std::string path = line.value("output");
  if (path.empty()) throw UsageError("--output needs the name of a file");
  launch::ReportRequest request{
      .output = launch::report_output("--output", path, line.flag("overwrite")), .title = line.text("title"), .command = {}};
  launch::check_report(request.output);
  std::vector<launch::CompareRow> rows;
  std::vector<launch::CompareOutcome> outcomes;
  launch::join_archives(line.operands, rows, outcomes);
  request.command = {"consist", "report"};
  request.command.insert(request.command.end(), line.arguments.begin(), line.arguments.end());
  launch::write_report(request, rows, outcomes);
  std::error_code ignored;
  const bool is_file = std::filesystem::is_regular_file(path, ignored);
  std::printf("%s: %zu %s%s\n", printable(path).c_str(), rows.size(), rows.size() == 1 ? "row" : "rows",
              is_file ? (", " + bytes_text(static_cast<std::int64_t>(std::filesystem::file_size(path)))).c_str() : "");
  return 0;
}

}  // namespace

constinit const Command report_command{
    .name = "report",
    .summary = "write what archives say as one HTML page: the winner, why, and every curve",
    .usage = "A.h5 [B.h5 ...] [-o FILE] [--title TEXT] [--overwrite]",
    .about =
        "Writes what archives of runs, or comparisons (comparison.h5), say as one HTML page that needs no network: which\n"
        "configuration wins and with what certainty, the table, why two runs differ, instruction by instruction, and the\n"
        "curves of loss, speed, memory and sensors. Runs of one configuration on one machine are repeats of a row if they\n"
        "lie in one folder.\n",
    .own = report_options,
    .notes =
        "consist compare --report FILE writes the page of a comparison when it is over. docs/report.md says how to read it.\n",
    .example = "consist report runs/quickstart/comparison.h5 -o report.html\n",
    .operand = "FILE",
    .run = report};

}  // namespace consist::commands
