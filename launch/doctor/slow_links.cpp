#include "launch/doctor/slow_links.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "consist/text.h"
#include "launch/doctor/words.h"
#include "launch/measure/statistics.h"

namespace consist::doctor {
namespace {

using launch::LinkFigure;
using launch::RankFigures;
using launch::ShortFigures;

constexpr double slow_link = 0.8;

const RankFigures& figures_of(const ShortFigures& figures, int rank) {
  return *std::find_if(figures.ranks.begin(), figures.ranks.end(), [&](const RankFigures& one) { return one.rank == rank; });
}

/// True if several links touch it, and all of them are slow beside the others.
bool is_to_blame(const std::vector<LinkFigure>& links, const std::function<bool(int rank)>& is_end) {
  std::vector<double> own, others;
  for (const LinkFigure& link : links) (is_end(link.one) || is_end(link.other) ? own : others).push_back(link.rate);
  return own.size() > 1 && !others.empty() && *std::max_element(own.begin(), own.end()) < slow_link * launch::median(others);
}

/// The median of the links that touch none of what is to blame.
double usual_rate(const std::vector<LinkFigure>& links, const std::function<bool(int rank)>& is_slow) {
  std::vector<double> rates;
  for (const LinkFigure& link : links) {
    if (!is_slow(link.one) && !is_slow(link.other)) rates.push_back(link.rate);
  }
  return launch::median(std::move(rates));
}

std::string blame_text(const std::string& names, const SlowLinks& slow, bool is_network) {
  return "all links of " + names + (is_network ? " to other hosts" : "") + " are slow: " + si_text(slow.least) +
         "B/s each way, others " + si_text(slow.usual) + "B/s";
}

/// Hosts whose ranks all have slow links to others.
bool blame_hosts(const ShortFigures& figures, const std::vector<LinkFigure>& links, SlowLinks& slow) {
  for (const RankFigures& rank : figures.ranks) {
    const auto is_here = [&](int end) { return figures_of(figures, end).node == rank.node; };
    if (slow.nodes.contains(rank.node) || !is_to_blame(links, is_here)) continue;
    slow.nodes.insert(rank.node);
    slow.blamed += (slow.blamed.empty() ? "host " : ", host ") + rank.host;
  }
  if (slow.nodes.empty()) return false;
  slow.usual = usual_rate(links, [&](int end) { return slow.nodes.contains(figures_of(figures, end).node); });
  slow.text = blame_text(slow.blamed, slow, true);
  return true;
}

bool blame_ranks(const ShortFigures& figures, const std::vector<LinkFigure>& links, bool across, SlowLinks& slow) {
  std::set<int> ranks;
  for (const RankFigures& rank : figures.ranks) {
    if (!is_to_blame(links, [&](int end) { return end == rank.rank; })) continue;
    ranks.insert(rank.rank);
    slow.nodes.insert(rank.node);
    slow.blamed += (slow.blamed.empty() ? "" : ", ") + name_of_rank(figures, rank.rank);
  }
  if (ranks.empty()) return false;
  slow.usual = usual_rate(links, [&](int end) { return ranks.contains(end); });
  slow.text = blame_text(slow.blamed, slow, across);
  return true;
}

}  // namespace

SlowLinks find_slow_links(const ShortFigures& figures, bool across) {
  SlowLinks slow;
  std::vector<LinkFigure> links;
  std::vector<double> rates;
  for (const LinkFigure& link : figures.links) {
    if (link.across != across) continue;
    links.push_back(link);
    rates.push_back(link.rate);
  }
  slow.count = static_cast<int>(links.size());
  if (links.empty()) return slow;
  slow.least = *std::min_element(rates.begin(), rates.end());
  // Of two links the faster one is the usual one.
  slow.usual = rates.size() == 2 ? *std::max_element(rates.begin(), rates.end()) : launch::median(rates);
  if (slow.count < 2) return slow;
  if (across && blame_hosts(figures, links, slow)) return slow;
  if (blame_ranks(figures, links, across, slow)) return slow;
  for (const LinkFigure& link : links) {
    if (link.rate >= slow_link * slow.usual) continue;
    append(slow.text, name_of_rank(figures, link.one) + " and " + name_of_rank(figures, link.other) + " send " +
                          si_text(link.rate) + "B/s each way, others " + si_text(slow.usual) + "B/s");
  }
  return slow;
}

std::string name_of_rank(const ShortFigures& figures, int rank) {
  return "rank " + std::to_string(rank) + " (" + figures_of(figures, rank).host + ")";
}

}  // namespace consist::doctor
