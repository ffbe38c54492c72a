#include "plugins/strategies/zero/gathers.h"

#include <algorithm>
#include <queue>
#include <set>
#include <unordered_map>

#include "plugins/strategies/zero/elements.h"

namespace consist::zero {
namespace {

class PeriodPlanner {
 public:
  PeriodPlanner(const Program& step, std::span<const Use> uses, const Settings& settings)
      : uses_(uses), settings_(settings), before_(uses.size() + 1, 0), next_(uses.size(), none) {
    for (const Use& use : uses) {
      if (!elements_.contains(use.source)) elements_[use.source] = whole_elements(step, use.source);
    }
    std::unordered_map<TensorId, std::size_t> seen;
    for (std::size_t u = 0; u < uses.size(); ++u) {
      before_[u + 1] = before_[u] + (is_kept(uses[u].source) ? 0 : elements_[uses[u].source]);
      if (auto [last, is_new] = seen.try_emplace(uses[u].source, u); !is_new) {
        next_[last->second] = u;
        last->second = u;
      }
    }
  }

  std::vector<Period> run() {
    for (std::size_t u = 0; u < uses_.size(); ++u) {
      Period& period = open(u);
      period.uses.push_back(u);
      period.last = uses_[u].instruction;
      if (!period.kept) close_or_keep(u);
    }
    return std::move(periods_);
  }

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  bool is_kept(TensorId source) const { return elements_.at(source) < settings_.persistence; }

  /// The period that use u falls into: the open one of its parameter, or a new one.
  Period& open(std::size_t u) {
    const TensorId source = uses_[u].source;
    if (auto found = open_.find(source); found != open_.end()) {
      idle_.erase({u, source});
      return periods_[found->second];
    }
    const std::int64_t elements = elements_[source];
    if (!is_kept(source)) {
      while (live_ + elements > settings_.max_live && !idle_.empty()) {
        const auto furthest = std::prev(idle_.end());
        close(furthest->second);
        idle_.erase(furthest);
      }
      live_ += elements;
    }
    open_[source] = periods_.size();
    periods_.push_back({source, elements, {}, uses_[u].ready, uses_[u].instruction, uses_[u].instruction, is_kept(source)});
    return periods_.back();
  }

  void close_or_keep(std::size_t u) {
    const TensorId source = uses_[u].source;
    const std::size_t next = next_[u];
    if (next != none && before_[next] - before_[u + 1] <= settings_.max_reuse_distance) {
      idle_.insert({next, source});
    } else {
      close(source);
    }
  }

  void close(TensorId source) {
    live_ -= elements_[source];
    open_.erase(source);
  }

  std::span<const Use> uses_;
  const Settings& settings_;
  std::unordered_map<TensorId, std::int64_t> elements_;
  std::vector<std::int64_t> before_;  // elements that the uses before each one touch
  std::vector<std::size_t> next_;     // by use: the next one of the same parameter
  std::vector<Period> periods_;
  std::unordered_map<TensorId, std::size_t> open_;   // periods by parameter
  std::set<std::pair<std::size_t, TensorId>> idle_;  // gathered and not in use, by their next use
  std::int64_t live_ = 0;
};

/// Cuts periods of one kind, in order of use, into buckets. A bucket never holds a parameter twice, and no tensor that is made
/// only after the bucket's first parameter is in use (an 8-bit slice whose amax another stage's products come before).
std::vector<GatherBucket> cut(std::span<const Period> periods, bool kept, std::int64_t most) {
  std::vector<GatherBucket> buckets;
  std::int64_t elements = 0;
  std::set<TensorId> inside;
  for (std::size_t p = 0; p < periods.size(); ++p) {
    if (periods[p].kept != kept) continue;
    if (buckets.empty() || elements + periods[p].elements > most || inside.contains(periods[p].source) ||
        periods[p].ready >= periods[buckets.back().periods.front()].first) {
      buckets.emplace_back();
      elements = 0;
      inside.clear();
    }
    buckets.back().periods.push_back(p);
    elements += periods[p].elements;
    inside.insert(periods[p].source);
  }
  return buckets;
}

InstructionId first_use(const GatherBucket& bucket, std::span<const Period> periods) {
  return periods[bucket.periods.front()].first;
}

std::int64_t elements_of(const GatherBucket& bucket, std::span<const Period> periods) {
  std::int64_t elements = 0;
  for (std::size_t p : bucket.periods) elements += periods[p].elements;
  return elements;
}

/// The best start of a bucket's gather.
struct Wish {
  InstructionId begin = 0;
  std::int64_t ahead = 0;  ///< elements of others that may then be gathered, or in flight, before they are used
};

/// From the last bucket to the first: when one begins, those before it must be done.
std::vector<Wish> find_wishes(std::span<const GatherBucket> buckets, std::span<const Period> periods,
                              std::span<const std::int64_t> sent_bytes, const PrefetchDistance& prefetch_distance,
                              const Settings& settings) {
  std::vector<Wish> wishes(buckets.size());
  for (std::size_t b = buckets.size(); b-- > 0;) {
    const InstructionId needed = first_use(buckets[b], periods);
    wishes[b].begin = !settings.overlap ? needed : b == 0 ? 0 : first_use(buckets[b - 1], periods);
    wishes[b].ahead = elements_of(buckets[b], periods);
    const bool makes_way = b + 1 < buckets.size() && wishes[b + 1].begin < needed;
    if (!settings.overlap || (wishes[b].ahead <= settings.gather_bucket && !makes_way)) continue;
    std::int64_t bytes = 0;
    for (std::size_t p : buckets[b].periods) bytes += sent_bytes[p];
    const InstructionId done_before = makes_way ? wishes[b + 1].begin : needed;
    wishes[b].begin = std::min(wishes[b].begin, prefetch_distance.latest_begin(bytes, done_before));
    if (makes_way) wishes[b].ahead = std::max(wishes[b].ahead, wishes[b + 1].ahead);
  }
  return wishes;
}

}  // namespace

std::vector<Period> plan_periods(const Program& step, std::span<const Use> uses, const Settings& settings) {
  return PeriodPlanner(step, uses, settings).run();
}

std::vector<GatherBucket> plan_gathers(std::span<const Period> periods, std::span<const std::int64_t> sent_bytes,
                                       const PrefetchDistance& prefetch_distance, const Settings& settings) {
  std::vector<GatherBucket> buckets = cut(periods, true, settings.gather_bucket);
  for (GatherBucket& bucket : buckets) bucket.before = settings.overlap ? 0 : first_use(bucket, periods);

  std::vector<GatherBucket> passing = cut(periods, false, settings.gather_bucket);
  const std::vector<Wish> wishes = find_wishes(passing, periods, sent_bytes, prefetch_distance, settings);
  using End = std::pair<InstructionId, std::int64_t>;  // last use of a gathered bucket, and its elements
  std::priority_queue<End, std::vector<End>, std::greater<>> ends;
  std::int64_t live = 0;
  std::queue<End> ahead;  // first uses of buckets that are not in use yet
  std::int64_t waiting = 0;
  InstructionId at = 0;
  for (std::size_t b = 0; b < passing.size(); ++b) {
    GatherBucket& bucket = passing[b];
    const std::int64_t elements = elements_of(bucket, periods);
    at = std::max(at, wishes[b].begin);
    while (!ahead.empty() && (ahead.front().first <= at || waiting > wishes[b].ahead)) {
      at = std::max(at, ahead.front().first);
      waiting -= ahead.front().second;
      ahead.pop();
    }
    const auto give_up_next = [&] {
      live -= ends.top().second;
      ends.pop();
    };
    while (!ends.empty() && ends.top().first < at) give_up_next();
    while (!ends.empty() && live + elements > settings.max_live && ends.top().first < first_use(bucket, periods)) {
      at = std::max(at, ends.top().first + 1);
      give_up_next();
    }
    bucket.before = at;
    ahead.emplace(first_use(bucket, periods), elements);
    waiting += elements;
    live += elements;
    for (std::size_t p : bucket.periods) ends.push({periods[p].last, periods[p].elements});
  }
  buckets.insert(buckets.end(), passing.begin(), passing.end());
  for (GatherBucket& bucket : buckets) {
    for (std::size_t p : bucket.periods) bucket.before = std::max(bucket.before, periods[p].ready + 1);
  }
  return buckets;
}

void insert_gathers(Program& step, Inserter& inserter, std::span<const Use> uses, AxisSet axes, const Settings& settings) {
  const std::vector<Period> periods = plan_periods(step, uses, settings);
  const std::int64_t ranks = step.mesh.size_of(axes);
  std::vector<std::int64_t> sent_bytes;
  for (const Period& period : periods)
    sent_bytes.push_back(period.elements * static_cast<std::int64_t>(size_of(step[period.source].dtype)) / ranks * (ranks - 1));
  for (const GatherBucket& bucket : plan_gathers(periods, sent_bytes, PrefetchDistance(step, axes), settings)) {
    std::vector<TensorId> sources;
    for (std::size_t p : bucket.periods) sources.push_back(periods[p].source);
    const Tag of_use = step.instructions[static_cast<std::size_t>(periods[bucket.periods.front()].first)].tag;
    std::vector<TensorId> wholes;
    inserter.after(bucket.before - 1, [&](Builder& builder) {
      builder.tag = of_use;
      builder.tag.inserted_by = settings.strategy;
      wholes = builder.reshard(sources, axes, Placement::replicate());
    });
    for (std::size_t k = 0; k < wholes.size(); ++k) {
      step[wholes[k]].role = Role::parameter;
      for (std::size_t u : periods[bucket.periods[k]].uses) {
        step.instructions[static_cast<std::size_t>(uses[u].instruction)].inputs[uses[u].input] = wholes[k];
      }
    }
  }
}

}  // namespace consist::zero
