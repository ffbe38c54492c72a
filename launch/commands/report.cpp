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

constexpr const char* help =
    "usage: consist report A.h5 [B.h5 ...] [-o FILE] [--title TEXT] [--overwrite]\n\n"
    "Writes what archives of runs, or comparisons (comparison.h5), say as one HTML page that needs no network: which\n"
    "configuration wins and with what certainty, the table, why two runs differ, instruction by instruction, and the\n"
    "curves of loss, speed, memory and sensors. Runs of one configuration on one machine are repeats of a row if they\n"
    "lie in one folder.\n\n"
    "  -o, --output FILE  the page [report.html]; an earlier report there is replaced\n"
    "  --title TEXT       its title [the models and the number of rows]\n"
    "  --overwrite        replace a file that is no report, too\n\n"
    "consist compare --report FILE writes the page of a comparison when it is over. docs/report.md says how to read it.\n\n"
    "example: consist report runs/quickstart/comparison.h5 -o report.html\n";

struct Request {
  launch::ReportRequest report{};
  std::string option = "--output", path = "report.html";
  std::vector<std::string> archives;
  bool overwrite = false;
};

Request read_request(const Arguments& arguments) {
  Request request;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::size_t equals = arguments[i].starts_with("--") ? arguments[i].find('=') : std::string::npos;
    const std::string name = arguments[i].substr(0, equals);
    const auto value = [&](const char* what) {
      if (equals != std::string::npos) return arguments[i].substr(equals + 1);
      if (i + 1 == arguments.size()) throw UsageError(name + " needs " + what);
      return arguments[++i];
    };
    if (name == "-o" || name == "--output") {
      request.option = name;
      request.path = value("a file");
      if (request.path.empty()) throw UsageError(name + " needs the name of a file");
    } else if (name == "--title") {
      request.report.title = value("a text");
    } else if (name == "--overwrite") {
      if (equals != std::string::npos) throw UsageError("--overwrite takes no value");
      request.overwrite = true;
    } else if (name.starts_with("-")) {
      throw UsageError("consist report has no option " + name + "; see consist report --help");
    } else {
      request.archives.push_back(arguments[i]);
    }
  }
  if (request.archives.empty())
    throw UsageError("consist report needs the archive of a run or a comparison; see consist report --help");
  return request;
}

}  // namespace

int report(const Arguments& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--help") {
      std::fputs(help, stdout);
      return 0;
    }
  }
  Request request = read_request(arguments);
  request.report.output = launch::report_output(request.option, request.path, request.overwrite);
  launch::check_report(request.report.output);
  std::vector<launch::CompareRow> rows;
  std::vector<launch::CompareOutcome> outcomes;
  launch::join_archives(request.archives, rows, outcomes);
  request.report.command = {"consist", "report"};
  request.report.command.insert(request.report.command.end(), arguments.begin(), arguments.end());
  launch::write_report(request.report, rows, outcomes);
  std::error_code ignored;
  const bool is_file = std::filesystem::is_regular_file(request.path, ignored);
  std::printf("%s: %zu %s%s\n", printable(request.path).c_str(), rows.size(), rows.size() == 1 ? "row" : "rows",
              is_file ? (", " + bytes_text(static_cast<std::int64_t>(std::filesystem::file_size(request.path)))).c_str() : "");
  return 0;
}

}  // namespace consist::commands
