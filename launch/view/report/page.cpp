#include "launch/view/report/page.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "consist/error.h"
#include "launch/compare/table.h"
#include "launch/view/report/report_data.h"

namespace consist::launch {
namespace {

/// The first line of every report, by which an earlier one is known.
constexpr std::string_view mark = "<!doctype html><!-- consist report -->";

std::string_view text_of_file(std::string_view name) {
  for (const PageText& file : page_texts()) {
    if (file.name == name) return file.text;
  }
  throw ProgramError("the executable was built without " + std::string(name));
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

/// JSON inside of a script element: nothing in it ends the element or begins a comment.
std::string inside_script(std::string json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

/// Our scripts, in the order of their names' numbers.
std::string own_scripts() {
  std::vector<PageText> files;
  for (const PageText& file : page_texts()) {
    if (file.name.ends_with(".js") && file.name != "chart.min.js") files.push_back(file);
  }
  std::sort(files.begin(), files.end(), [](const PageText& a, const PageText& b) { return a.name < b.name; });
  std::string all = "'use strict';\n";
  for (const PageText& file : files) all += std::string(file.text) + "\n";
  return all;
}

/// True if the build found Chart.js (launch/CMakeLists.txt).
#ifdef CONSIST_WITH_CHART_JS
constexpr bool has_charts = true;
#else
constexpr bool has_charts = false;
#endif

}  // namespace

#ifndef CONSIST_WITH_CHART_JS
const std::vector<PageText>& page_texts() {
  static const std::vector<PageText> none;
  return none;
}
#endif

Output report_output(const std::string& option, const std::string& path, bool overwrite) {
  return {option, path, overwrite, std::string(mark)};
}

void check_report(const Output& output) {
  if (!has_charts) {
    throw UnavailableError("this build of Consist has no report: Chart.js was not there when it was configured. Install the package "
                           "libjs-chart.js, run cmake again and build");
  }
  check_output(output);
}

void write_report(const ReportRequest& request, const std::vector<CompareRow>& rows,
                  const std::vector<CompareOutcome>& outcomes) {
  const nlohmann::ordered_json data = report_data(request, rows, outcomes);
  std::string page = std::string(text_of_file("page.html"));
  const std::pair<std::string_view, std::string> places[] = {
      {"{{title}}", escaped(data.at("title").get<std::string>())},
      {"{{style}}", std::string(text_of_file("report.css"))},
      {"{{table}}", escaped(comparison_text(rows, outcomes))},
      {"{{license}}", escaped(text_of_file("copyright"))},
      {"{{chart.js}}", std::string(text_of_file("chart.min.js"))},
      {"{{script}}", own_scripts()},
      {"{{data}}", inside_script(data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace))}};
  std::string whole(mark);
  for (std::size_t at = 0; at < page.size();) {
    const std::size_t open = page.find("{{", at);
    whole += page.substr(at, open - at);
    if (open == std::string::npos) break;
    const auto* const place = std::find_if(std::begin(places), std::end(places),
                                           [&](const auto& p) { return page.compare(open, p.first.size(), p.first) == 0; });
    if (place == std::end(places)) throw ProgramError("page.html has a place that nothing fills: " + page.substr(open, 20));
    whole += place->second;
    at = open + place->first.size();
  }
  write_output(request.output, whole);
}

}  // namespace consist::launch
