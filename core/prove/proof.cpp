#include "core/prove/proof.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "consist/error.h"
#include "core/base/in_parallel.h"
#include "core/cost/collective_stream.h"
#include "core/interpreter/compute_kernel.h"
#include "core/interpreter/order_check.h"
#include "core/interpreter/step_run.h"
#include "core/prove/one_rank.h"
#include "core/prove/other_layout.h"
#include "core/prove/programs_with_room.h"
#include "core/prove/small_run.h"

namespace consist::prove {
namespace {

using interpreter::Outcome;
using interpreter::Planned;
using interpreter::RankPrograms;

constexpr int steps = 3;
constexpr std::int64_t scratch = 256;  // bytes of each kernel, as those of GPUs have some

/// Adds a statement; `show` returns its text and fills in what is wrong.
void state(Proof& proof, const std::string& name, const std::function<std::string(std::vector<std::string>&)>& show) {
  const auto begin = std::chrono::steady_clock::now();
  Statement statement{.name = name, .text = {}, .wrong = {}, .seconds = 0};
  try {
    statement.text = show(statement.wrong);
  } catch (const ProgramError& error) {
    statement.wrong.emplace_back(error.what());
  }
  statement.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  proof.statements.push_back(std::move(statement));
}

std::string number(std::int64_t n, const char* what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

void add(std::vector<std::string>& wrong, const std::vector<Difference>& differences, const std::string& where = "") {
  for (const Difference& d : differences) wrong.push_back(where + d.text);
}

/// Both sides of the comparison, and what they gave.
class Comparison {
 public:
  Comparison(const SmallRun& small, Proof& proof, const ProofOptions& options)
      : small_(small), proof_(proof), options_(options), programs_(small.plan, scratch) {
    RunConfig one = alone(*programs_);
    one.evaluate_every = 1;
    one_plan_.emplace(plan_run(std::move(one), small.plan.host()));
    one_ = interpreter::compile(*one_plan_, 0);
    rounding_ = interpreter::ops_without_formula(one_->steps.front().program);
    rounding_.merge(interpreter::ops_without_formula(programs_->steps.front().program));
  }

  void show() {
    state(proof_, "training", [&](std::vector<std::string>& wrong) { return training(wrong); });
    if (found_) {
      state(proof_, "evaluation", [&](std::vector<std::string>& wrong) { return evaluation(wrong); });
      state(proof_, "checkpoint", [&](std::vector<std::string>& wrong) { return checkpoint(wrong); });
      state(proof_, "other layout", [&](std::vector<std::string>& wrong) { return other_layout(wrong); });
    }
    if (!proof_.statements.front().wrong.empty()) find_first();
    state(proof_, "order", [&](std::vector<std::string>& wrong) { return order(wrong); });
  }

 private:
  /// Limit of differences, and a note if ops round by kernels of their own.
  double within() const { return rounding_.empty() ? tolerance : rounded_tolerance; }
  std::string rounding_text() const {
    std::string text;
    for (const std::string& op : rounding_)
      text += (text.empty() ? "; to 1e-4, since kernels of their own in f32 compute " : ", ") + op;
    return text;
  }

  std::string training(std::vector<std::string>& wrong) {
    found_ = programs_.run(
        [&](const RankPrograms& programs) { return interpreter::run(programs, {.order = options_.order, .steps = steps}); });
    expected_ = interpreter::run(*one_, {.steps = steps});
    add(wrong, differences(*found_, expected_, within()));
    const auto is_gradient = [](const auto& value) { return value.first.ends_with(".gradient"); };
    const std::int64_t gradients = std::ranges::count_if(expected_.values, is_gradient);
    return std::to_string(steps) + " steps: the loss, the gradients' norm, " + number(gradients, "gradient") + ", " +
           number(std::ssize(expected_.values) - gradients, "parameter and state") + rounding_text();
  }

  std::string evaluation(std::vector<std::string>& wrong) {
    const std::int64_t sequences = programs_->config.batch * programs_->layout.batch_ranks();
    const double expected = interpreter::evaluation_of_one_rank(one_->config, one_->parts, sequences, expected_.after_first_step);
    std::vector<Difference> differences;
    compare(differences, "the evaluation's loss", {found_->evaluation}, {expected}, within());
    add(wrong, differences);
    return "the loss of " + number(sequences, "sequence") + " after the first step";
  }

  std::string checkpoint(std::vector<std::string>& wrong) {
    const Outcome expected = behind(expected_, 1);
    const interpreter::RunOptions options{.order = options_.order, .steps = steps};
    add(wrong, differences(interpreter::run_on(*programs_, found_->saved, options), expected, within()),
        "resumed on the same layout, ");
    std::string text = "saved after the first step, resumed on the same layout";
    if (!found_->saved.own.empty()) return text + "; a state is each rank's own, so that no other layout resumes it";
    add(wrong, differences(interpreter::run_on(*one_, found_->saved, options), expected, within()), "resumed on one rank, ");
    add(wrong, differences(interpreter::run_on(*programs_, expected_.saved, options), expected, within()),
        "resumed from one rank, ");
    return text + ", on one rank, and from one rank";
  }

  /// The first of other_layouts() that goes together with the small run.
  std::string other_layout(std::vector<std::string>& wrong) {
    if (!found_->saved.own.empty()) return "none: a state is each rank's own";
    std::string refused;
    for (RunConfig& config : other_layouts(small_.plan)) {
      const std::string other = layout_text(config);
      try {
        ProgramsWithRoom there(plan_run(std::move(config), small_.plan.host(), small_.plan.target()), scratch);
        wrong = there_and_back({*programs_, found_->saved, *one_, expected_, {.order = options_.order, .steps = steps}, within()},
                               there);
        return "the checkpoint resumed on " + other + ", and one saved there on this layout";
      } catch (const UsageError& error) {
        refused += "; " + other + ": " + error.what();
      }
    }
    return "none of several ranks goes together with the small run" + refused;
  }

  void find_first() {
    RunConfig one = one_->config;
    one.accumulation = programs_->config.accumulation;
    one.batch = 0;
    one.global_batch = programs_->config.global_batch;
    proof_.first =
        first_difference(*programs_, *interpreter::compile(plan_run(std::move(one), small_.plan.host()), 0), options_.order);
  }

  std::string order(std::vector<std::string>& wrong) {
    const std::int64_t conflicts =
        interpreter::check_ranks(programs_->steps, wrong) + interpreter::check_ranks(programs_->evaluations, wrong);
    return "collectives of " + number(programs_->config.ranks, "rank") + " meet, " + number(conflicts, "conflict") +
           " on memory ordered";
  }

  const SmallRun& small_;
  Proof& proof_;
  const ProofOptions& options_;
  ProgramsWithRoom programs_;
  std::unique_ptr<RankPrograms> one_;
  std::optional<Plan> one_plan_;
  std::set<std::string> rounding_;  // ops whose kernels round
  Outcome expected_;
  std::optional<Outcome> found_;
};

/// The programs of the run as it is stated: one for each stage.
std::string full_size_order(const Plan& plan, int threads, std::vector<std::string>& wrong) {
  const Program first = plan.step(0);
  const Mesh& mesh = plan.layout().mesh;
  const std::vector<int> stages = first.stage_axis < 0 ? std::vector<int>{0} : mesh.group(0, first.stage_axis);
  std::vector<CollectiveStream> streams(stages.size());
  std::vector<interpreter::OrderReport> reports(stages.size());
  std::vector<std::size_t> instructions(stages.size());
  in_parallel(stages.size(), threads, [&](std::size_t n) {
    const Planned planned = interpreter::planned(n == 0 ? first : plan.step(stages[n]), scratch);
    reports[n] = interpreter::check_order(planned);
    streams[n] = collective_stream(planned.program);
    instructions[n] = planned.program.instructions.size();
  });
  std::vector<const CollectiveStream*> of_ranks;
  for (int rank = 0; rank < mesh.ranks(); ++rank)
    of_ranks.push_back(&streams[first.stage_axis < 0 ? 0 : static_cast<std::size_t>(mesh.coordinate(rank, first.stage_axis))]);
  verify_streams(mesh, of_ranks);
  std::int64_t conflicts = 0, calls = 0, all = 0;
  for (std::size_t n = 0; n < stages.size(); ++n) {
    conflicts += reports[n].conflicts;
    calls += std::ssize(streams[n].calls);
    all += static_cast<std::int64_t>(instructions[n]);
    wrong.insert(wrong.end(), reports[n].violations.begin(), reports[n].violations.end());
  }
  return number(all, "instruction") + ": " + number(calls, "collective") + " of " + number(mesh.ranks(), "rank") + " meet, " +
         number(conflicts, "conflict") + " on memory ordered";
}

}  // namespace

bool Proof::holds() const {
  return std::ranges::all_of(statements, [](const Statement& s) { return s.wrong.empty(); });
}

Proof prove(const Plan& plan, const ProofOptions& options) {
  const SmallRun small = small_run(plan);
  Proof proof;
  proof.sizes = small.sizes;
  proof.notes = small.notes;
  Comparison(small, proof, options).show();
  if (options.full_size)
    state(proof, "full size", [&](std::vector<std::string>& wrong) { return full_size_order(plan, options.threads, wrong); });
  return proof;
}

}  // namespace consist::prove
