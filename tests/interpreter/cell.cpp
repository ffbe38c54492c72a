#include "tests/interpreter/cell.h"

#include <map>

#include "consist/error.h"
#include "core/interpreter/order_check.h"

namespace consist::interpreter {
const Outcome& one_rank(const RankPrograms& programs) {
  static std::map<std::string, Outcome> known;  // by everything that the one rank's run is told
  const RunConfig one = prove::alone(programs);
  auto [found, added] = known.try_emplace(one.to_json());
  if (added) found->second = run(*compile(one, 0), {});
  return found->second;
}

namespace {

std::vector<std::string> texts(const std::vector<prove::Difference>& differences) {
  std::vector<std::string> texts;
  for (const prove::Difference& d : differences) texts.push_back(d.text);
  return texts;
}

}  // namespace

std::vector<std::string> differences(const RankPrograms& programs, const Outcome& found) {
  const RunConfig& config = programs.config;
  const Outcome& expected = one_rank(programs);
  std::vector<prove::Difference> wrong = prove::differences(found, expected);
  static std::map<std::pair<const Outcome*, std::int64_t>, double> evaluations;
  const std::int64_t sequences = config.batch * programs.layout.batch_ranks();
  const auto [evaluation, added] = evaluations.try_emplace({&expected, sequences});
  if (added) {
    const RunConfig one = prove::alone(programs);
    evaluation->second = evaluation_of_one_rank(one, make_parts(one, plugin_host()), sequences, expected.after_first_step);
  }
  prove::compare(wrong, "the evaluation's loss", {found.evaluation}, {evaluation->second});
  return texts(wrong);
}

std::vector<std::string> differences_of_rounded(const RankPrograms& programs, std::uint64_t order) {
  RunConfig one = prove::alone(programs);
  one.precision = programs.config.precision;
  one.pack = programs.config.pack;  // products that are packed round once what others round one by one
  if (const auto options = programs.config.plugin_options.find(one.precision); options != programs.config.plugin_options.end())
    one.plugin_options[one.precision] = options->second;
  const Outcome expected = run(*compile(one, 0), {.steps = 1, .rounded = true});
  const Outcome found = run(programs, {.order = order, .steps = 1, .rounded = true});
  return texts(prove::differences(found, expected, rounded_tolerance));
}

std::vector<std::string> wrong_in_run(const RankPrograms& programs, std::uint64_t order) {
  try {
    return differences(programs, run(programs, {.order = order}));
  } catch (const ProgramError& error) {
    return {error.what()};
  }
}

std::vector<std::string> check(const ModelChoice& model, const std::vector<std::string>& words, std::uint64_t order) {
  const auto programs = compile(config_of(model, words), 256 * static_cast<std::int64_t>(order % 5));
  std::vector<std::string> wrong;
  try {
    check_ranks(programs->steps, wrong);
    check_ranks(programs->evaluations, wrong);
  } catch (const ProgramError& error) {
    wrong.emplace_back(error.what());
  }
  for (std::string& difference : wrong_in_run(*programs, order)) wrong.push_back(std::move(difference));
  return wrong;
}

std::string text_of(const ModelChoice& model, const std::vector<std::string>& words) {
  std::string text = model.golden + " " + model.changes;
  for (const std::string& word : words) text += " " + word;
  return text;
}

}  // namespace consist::interpreter
