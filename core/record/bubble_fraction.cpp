#include "core/record/bubble_fraction.h"

#include <algorithm>
#include <numeric>

#include "consist/text.h"

namespace consist {
namespace {

std::string key_of(int rank) {
  return "bubble_fraction." + std::to_string(rank);
}

}  // namespace

double bubble_fraction(const Program& program, const Profile& profile, double step_seconds) {
  const double optimizer = profile.compute_seconds(program, true), busy = profile.compute_seconds(program, false);
  const double time = step_seconds - optimizer;
  return time > 0 ? std::clamp(1 - busy / time, 0.0, 1.0) : 0;
}

std::vector<double> collect_bubble_fractions(Job& job, double own) {
  job.put(key_of(job.rank()), std::to_string(own));
  std::vector<double> shares;
  for (int rank = 0; job.rank() == 0 && rank < job.size(); ++rank) {
    shares.push_back(std::stod(job.get(key_of(rank), job.timeout())));
  }
  return shares;
}

std::vector<StageOutline> collect_outlines(Job& job, const Program& own, const Profile& profile) {
  // In pieces: the store takes no value of any length.
  constexpr std::size_t most_bytes = std::size_t{1} << 20U;
  const auto key = [](int rank, std::size_t piece) { return "outline." + std::to_string(rank) + "." + std::to_string(piece); };
  const std::vector<int> of_rank_0 = own.mesh.group(0, own.stage_axis);
  std::vector<StageOutline> outlines;
  if (std::find(of_rank_0.begin(), of_rank_0.end(), job.rank()) != of_rank_0.end()) {
    Durations measured;
    for (std::size_t i = 0; i < own.instructions.size(); ++i) measured.push_back(profile.seconds(i));
    const std::string words = to_words(outline_of(own, measured));
    for (std::size_t piece = 0; piece * most_bytes <= words.size(); ++piece)  // the last one is shorter than the others
      job.put(key(job.rank(), piece), words.substr(piece * most_bytes, most_bytes));
  }
  if (job.rank() != 0) return outlines;
  for (int rank : of_rank_0) {
    std::string words, piece;
    for (std::size_t n = 0; n == 0 || piece.size() == most_bytes; ++n) {
      piece = job.get(key(rank, n), job.timeout());
      words += piece;
    }
    outlines.push_back(outline_from(words));
  }
  return outlines;
}

BubbleReport report_bubble(const std::vector<double>& ranks, std::span<const StageOutline> stages) {
  return {.ranks = ranks,
          .mean = std::accumulate(ranks.begin(), ranks.end(), 0.0) / static_cast<double>(std::max<std::size_t>(ranks.size(), 1)),
          .equal_stages = simulate(stages, TimelineCost::equal).bubble_fraction(),
          .by_ops = simulate(stages, TimelineCost::by_ops).bubble_fraction(),
          .by_times = simulate(stages, TimelineCost::measured).bubble_fraction()};
}

std::string bubble_text(const BubbleReport& report) {
  std::string text = "idle " + fixed_text(100 * report.mean, 1) + "% of forward and backward, measured (by rank:";
  for (double share : report.ranks) text += " " + fixed_text(100 * share, 1) + "%";
  return text + "); the schedule gives " + fixed_text(100 * report.equal_stages, 1) + "% if all stages are equal, " +
         fixed_text(100 * report.by_ops, 1) + "% by the costs of their ops, " + fixed_text(100 * report.by_times, 1) +
         "% by their measured times\n";
}

}  // namespace consist
