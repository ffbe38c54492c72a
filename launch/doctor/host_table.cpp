#include "launch/doctor/host_table.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "consist/text.h"
#include "core/base/quantity_text.h"
#include "launch/measure/statistics.h"

namespace consist::doctor {
namespace {

using Row = std::vector<std::string>;

std::string ranks_text(const std::vector<int>& ranks) {
  const std::string first = std::to_string(ranks.front());
  return ranks.size() == 1 ? first : first + "-" + std::to_string(ranks.back());
}

/// The time of the host's slowest rank over the median of all.
std::string time_text(const launch::ShortFigures& figures, int node) {
  std::vector<double> all;
  double slowest = 0;
  for (const launch::RankFigures& rank : figures.ranks) {
    all.push_back(rank.seconds);
    if (rank.node == node) slowest = std::max(slowest, rank.seconds);
  }
  return fixed_text(slowest / launch::median(std::move(all)), 2) + " x";
}

std::string link_text(const launch::ShortFigures& figures, const std::vector<int>& ranks) {
  double least = std::numeric_limits<double>::infinity();
  const auto is_here = [&](int rank) { return std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); };
  for (const launch::LinkFigure& link : figures.links) {
    if (link.across && (is_here(link.one) || is_here(link.other))) least = std::min(least, link.rate);
  }
  return least == std::numeric_limits<double>::infinity() ? "-" : si_text(least) + "B/s";
}

}  // namespace

std::string host_table(const JointReport& joint) {
  const bool measured = joint.all.figures.has_value();
  std::vector<Row> rows{{"host", "ranks", "wrong", "warnings", "clock"}};
  if (measured) rows[0].insert(rows[0].end(), {"time", "network"});
  for (std::size_t node = 0; node < joint.hosts.size(); ++node) {
    const HostReport& host = joint.hosts[node];
    Row row{host.host, ranks_text(host.ranks), std::to_string(host.report.count(Status::wrong)),
            std::to_string(host.report.count(Status::warning)), milliseconds_text(host.clock_seconds)};
    if (measured) {
      row.push_back(time_text(*joint.all.figures, static_cast<int>(node)));
      row.push_back(link_text(*joint.all.figures, host.ranks));
    }
    rows.push_back(std::move(row));
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t column = 0; column < row.size(); ++column) {
      std::size_t width = 0;
      for (const Row& other : rows) width = std::max(width, other[column].size() + 2);
      line += row[column];
      if (column + 1 < row.size()) line.append(width - row[column].size(), ' ');
    }
    text += line + "\n";
  }
  return text;
}

}  // namespace consist::doctor
