// Every adapter rewrites a model legally, the same each time; it freezes the model, begins with the model's loss, is trained, and
// its losses are those of one rank in other layouts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "consist/error.h"
#include "core/program/printer.h"
#include "tests/conformance/parts/parts.h"
#include "tests/temporary_folder.h"
#include "tests/train_from_scratch.h"

namespace consist {
namespace {

using testing::Candidate;
using testing::host;

class AdapterConformance : public ::testing::TestWithParam<Candidate> {
 protected:
  static Plan planned(const std::string& model, const std::string& adapter) {
    RunConfig config = testing::tiny_config(testing::tiny_model(model), "fp32");
    config.adapter = adapter;
    if (adapter != no_adapter) config.plugin_options[adapter] = GetParam().options;
    return plan_run(config, host());
  }
  std::vector<double> losses(const std::string& archive, const std::vector<std::string>& more, bool adapted = true) const {
    std::vector<std::string> words{"--model=" + testing::tiny_model("llama-untied"), "--sequence=16", "--global-batch=4",
                                   "--device=cpu", "--cpu.threads=1"};
    if (adapted) words.push_back("--adapter=" + GetParam().name);
    for (const auto& [option, value] : GetParam().options)
      if (adapted) words.push_back("--" + GetParam().name + "." + option + "=" + value);
    words.insert(words.end(), more.begin(), more.end());
    test::add_fallbacks(words, {"--steps=8"});
    return test::train_from_scratch(folder_ / archive, words, testing::consist_program()).column("loss");
  }
  const TemporaryFolder folder_;
};

TEST_P(AdapterConformance, ProgramsAreLegalAndTheSameEachTime) {
  for (const char* model : {"llama-untied", "qwen3-tied"}) {
    SCOPED_TRACE(model);
    const Plan plan = planned(model, GetParam().name);
    EXPECT_EQ(to_text(plan.step(0)), to_text(planned(model, GetParam().name).step(0)));
  }
}

TEST_P(AdapterConformance, TheModelIsFrozenAndWhatIsAddedHasNamesOfItsModules) {
  for (const char* model : {"llama-untied", "qwen3-tied"}) {
    SCOPED_TRACE(model);
    std::set<std::string> of_model;
    for (const Parameter& p : planned(model, no_adapter).step(0).parameters) of_model.insert(p.name);
    std::set<std::string> seen;
    for (const Parameter& p : planned(model, GetParam().name).step(0).parameters) {
      EXPECT_TRUE(seen.insert(p.name).second) << p.name;
      const bool added = !of_model.contains(p.name);
      EXPECT_TRUE(added || !p.trainable) << p.name;
      const auto is_of_module = [&](const std::string& name) { return p.name.starts_with(name.substr(0, name.rfind('.') + 1)); };
      EXPECT_TRUE(!added || std::any_of(of_model.begin(), of_model.end(), is_of_module)) << p.name;
    }
    EXPECT_TRUE(std::includes(seen.begin(), seen.end(), of_model.begin(), of_model.end()));
    EXPECT_GT(seen.size(), of_model.size());
  }
}

TEST_P(AdapterConformance, SaysWhatItIs) {
  const Plan plan = planned("llama-untied", GetParam().name);
  const Adapter& adapter = plan.parts().adapted->adapter();
  EXPECT_FALSE(adapter.describe().empty());
  const nlohmann::json config = nlohmann::json::parse(adapter.config_json(plan.step(0), "the/base"));
  EXPECT_EQ(config.value("base_model_name_or_path", ""), "the/base");
  EXPECT_TRUE(config.contains("peft_type"));
}

// In pieces as they are written, which begin and end within rows.
TEST_P(AdapterConformance, MergesTheSameInPiecesAndLeavesAloneWhatItDoesNotAdapt) {
  const Plan plan = planned("llama-untied", GetParam().name);
  const Program model = plan.step(0);
  const ReadWeights read = [](std::string_view name, std::int64_t first, std::span<float> out) {
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<float>((static_cast<std::size_t>(first) + i + name.size()) % 7) - 3;
  };
  bool changes = false;
  for (const Parameter& p : model.parameters) {
    if (!plan.parts().adapted->is_of_base(p.name)) continue;
    const auto count = static_cast<std::size_t>(model[p.tensor].shape.elements());
    std::vector<float> whole(count, 1), pieces(count, 1);
    plan.parts().adapted->adapter().merge(model, p.name, 0, whole, read);
    for (std::size_t first = 0; first < count; first += 37) {
      const std::size_t size = std::min<std::size_t>(37, count - first);
      plan.parts().adapted->adapter().merge(model, p.name, static_cast<std::int64_t>(first),
                                            std::span(pieces).subspan(first, size), read);
    }
    EXPECT_EQ(whole, pieces) << p.name;
    const bool changed = whole != std::vector<float>(count, 1);
    changes = changes || changed;
    if (model[p.tensor].shape.rank() == 1 || p.name == "model.embed_tokens.weight") EXPECT_FALSE(changed) << p.name;
  }
  EXPECT_TRUE(changes);
}

TEST_P(AdapterConformance, BeginsWithTheLossOfTheModelAndIsTrained) {
  const std::vector<double> found = losses("adapted.h5", {"--strategy=ddp"});
  EXPECT_NEAR(found.front() / losses("model.h5", {"--strategy=ddp"}, false).front(), 1, 1e-6);
  // A model of random weights that stay is hard to teach: only that its losses move is asked for.
  EXPECT_GT(std::abs(found.back() - losses("still.h5", {"--strategy=ddp", "--learning-rate=0"}).back()), 1e-5);
}

TEST_P(AdapterConformance, LossesAreThoseOfOneRankWhereRanksHoldParts) {
  if (!host().has("strategy", "zero2") || !host().has("strategy", "tp-sp")) GTEST_SKIP() << "this build lacks zero2 or tp-sp";
  const std::vector<double> expected = losses("one.h5", {"--strategy=ddp"});
  for (const char* strategy : {"zero2", "tp-sp=2"}) {
    const std::vector<double> found = losses("two.h5", {std::string("--strategy=") + strategy, "--ranks=2"});
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t s = 0; s < found.size(); ++s) EXPECT_NEAR(found[s] / expected[s], 1, 1e-5) << strategy << ", step " << s + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(Adapters, AdapterConformance,
                         ::testing::ValuesIn(testing::candidates("adapter", "CONSIST_CONFORMANCE_ADAPTERS")),
                         [](const auto& info) { return testing::test_name(info); });

}  // namespace
}  // namespace consist
