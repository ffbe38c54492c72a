// consist predict: what it says is of one piece.
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <string>

#include "tests/commands/predicted.h"
#include "tests/golden_config.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using namespace test;

const std::string eight_b = "--model llama-3-8b --precision bf16 --sequence 4096 --batch 1 ";

TEST(Predict, ActivationsOnTheHostTakeTheirTimeAndMakeRoom) {
  const std::string words = "--model qwen3-0.6b --precision bf16 --sequence 32768 --batch 1 --machine h200";
  const Json kept = predicted(words), there = predicted(words + " --offload-activations all");
  EXPECT_EQ(kept["memory"][0]["host_bytes"], 0);
  EXPECT_GT(there["memory"][0]["host_bytes"], 20e9);
  EXPECT_LT(there["memory"][0]["device_bytes"].get<double>(), 0.4 * kept["memory"][0]["device_bytes"].get<double>());
  EXPECT_EQ(kept["seconds"]["host"], 0);
  EXPECT_GT(there["seconds"]["host"], 0) << "the link needs longer than forward";
}

TEST(Predict, NamesActivationsOnTheHostWhereTheyMakeAPlanFit) {
  const std::string words = "--model qwen3-0.6b --precision bf16 --sequence 32768 --batch 1 --recompute full --machine ";
  const auto result = run("predict", split_words(words + "h200,capacity=13.2e9"));
  EXPECT_NE(result.status, 0);
  EXPECT_THAT(result.output, AllOf(HasSubstr("DOES NOT FIT"), HasSubstr("'--offload-activations all' fits: ")));
}

TEST(Predict, TheBatchOfExpertsIsCutWhereThatIsPredictedToBeFaster) {
  const TemporaryFolder folder;  // four layers of Qwen3-30B-A3B
  std::ofstream(folder / "config.json") << test::golden_config("qwen3-moe", {{"hidden_size", 2048},
                                                                             {"head_dim", 128},
                                                                             {"num_attention_heads", 32},
                                                                             {"moe_intermediate_size", 768},
                                                                             {"num_experts", 128},
                                                                             {"num_experts_per_tok", 8},
                                                                             {"num_hidden_layers", 4},
                                                                             {"mlp_only_layers", Json::array()},
                                                                             {"max_position_embeddings", 4096},
                                                                             {"vocab_size", 32768}});
  const auto seconds = [&](const std::string& options) {
    return predicted_seconds("--model " + (folder / "") +
                             " --from-scratch --machine h200 --ranks 4 --batch 4 --sequence 4096 --precision bf16 " + options);
  };
  const std::string all = "--strategy ep=4+ddp", few = "--strategy ep=2+tp-sp=2";
  EXPECT_LT(seconds(all + " --ep.parts 2"), 0.995 * seconds(all + " --ep.parts 1")) << "messages are hidden";
  EXPECT_EQ(seconds(all), seconds(all + " --ep.parts 2"));
  EXPECT_GT(seconds(few + " --ep.parts 2"), seconds(few + " --ep.parts 1")) << "kernels of half the tokens cost more than that";
  EXPECT_EQ(seconds(few), seconds(few + " --ep.parts 1"));
}

TEST(Predict, FiguresOfAMachineAreBoundedAndNoPredictionIsNan) {
  const std::string words = "--model llama-tiny --sequence 64 --ranks 2 --machine h100,";
  for (const std::string key : {"peak", "peak-fp32", "memory", "node", "capacity", "host"}) {
    for (const char* beyond : {"=1e308", "=1e19", "=1e-13", "=5e-324"}) {
      const auto refused = run("predict", split_words(words + key + beyond));
      EXPECT_EQ(refused.status, 2) << key << beyond;
      EXPECT_THAT(refused.output, AllOf(HasSubstr(key + beyond), HasSubstr("between 1e-12 and 1e18")));
    }
    for (const char* extreme : {"=1e18", "=1e-12"}) {
      const auto said = run("predict", split_words(words + key + extreme));
      EXPECT_LT(said.status, 2) << said.output;
      EXPECT_FALSE(std::regex_search(said.output, std::regex("\\b-?(nan|inf)\\b"))) << key << extreme << "\n" << said.output;
    }
  }
}

TEST(Predict, ThePartsOfAStepSumToIt) {
  for (const char* more : {"--ranks 1 --machine h200", "--strategy zero3-offload --ranks 8", "--strategy tp-sp=4+ddp --ranks 8",
                           "--strategy pipeline=4+zero2 --ranks 8 --accumulation 4",
                           "--strategy zero3-offload --ranks 4 --zero3-offload.offload-optimizer.device cpu"}) {
    const Json json = predicted(eight_b + more);
    const double step = json["step_seconds"]["value"];
    EXPECT_GT(step, 0);
    double sum = 0;
    for (const auto& [part, seconds] : json["seconds"].items()) {
      if (seconds.is_number()) {
        sum += seconds.get<double>();
      } else {
        for (const auto& [axis, exposed] : seconds.items()) sum += exposed.get<double>();
      }
    }
    EXPECT_NEAR(sum, step, 1e-6 * step) << more << "\n" << json.dump(2);
    EXPECT_GT(json["seconds"]["attention"], 0);
    EXPECT_GT(json["seconds"]["products"], json["seconds"]["memory_bound"]);
    int ranks = 0;
    for (const Json& memory : json["memory"]) ranks += memory["ranks"].get<int>();
    EXPECT_EQ(ranks, json["ranks"]);
    const double tokens = json["tokens_per_second"].get<double>() * step;
    EXPECT_NEAR(tokens, std::round(tokens / 4096) * 4096, 1e-3) << "whole sequences";
    EXPECT_EQ(json["critical_path"].size(), 10U);
  }
  EXPECT_GT(predicted(eight_b + "--strategy pipeline=4 --ranks 4 --accumulation 4")["seconds"]["bubble"], 0);
  EXPECT_EQ(predicted(eight_b + "--ranks 1")["seconds"]["bubble"], 0);
}

std::vector<std::string> kinds_of(const Json& json) {
  std::vector<std::string> kinds;
  for (const Json& kind : json["step_error"]["kinds"]) kinds.push_back(kind["kind"]);
  return kinds;
}

TEST(Predict, AnErrorIsThatOfTheKindsOfTheStep) {
  using ::testing::ElementsAre;
  const std::string moe = "--model qwen3-moe-tiny --precision bf16 --sequence 512 --batch 4 --machine h200 --ranks 4 ";
  const auto kinds = [](const std::string& words) { return kinds_of(predicted(words)); };
  EXPECT_THAT(kinds(eight_b + "--machine h200"), ElementsAre("one device"));
  EXPECT_THAT(kinds(eight_b + "--machine h200 --ranks 4 --strategy zero2 --transport socket"),
              ElementsAre("one device", "socket within a node"));
  EXPECT_THAT(
      kinds(eight_b + "--machine h200 --ranks 16 --strategy zero3-offload=8+ddp=2 --transport zero3-offload=nvlink,ddp=efa"),
      ElementsAre("one device", "efa between nodes", "nvlink within a node"));
  EXPECT_THAT(kinds("--model llama-3-8b --precision fp8 --sequence 8192 --batch 1 --machine h200 --ranks 2 --strategy cp=2 "
                    "--transport nvlink"),
              ElementsAre("one device", "nvlink within a node", "context", "fp8"));
  EXPECT_THAT(kinds(moe + "--strategy ep=2+ddp --transport nvlink"),
              ElementsAre("one device", "nvlink within a node", "experts"));
  EXPECT_THAT(kinds("--model llama-3.2-1b --precision bf16 --sequence 2048 --batch 2 --machine h200 --offload-activations all"),
              ElementsAre("one device", "offload"));
}

TEST(Predict, AnErrorIsEarnedByMeasuredStepsOrNotKnown) {
  const Json known = predicted(eight_b + "--machine h200 --ranks 8 --strategy zero2 --transport nvlink");
  const double step = known["step_seconds"]["value"], error = known["step_error"]["value"];
  EXPECT_NEAR(known["step_seconds"]["low"].get<double>(), step / (1 + error), 1e-9);
  EXPECT_NEAR(known["step_seconds"]["high"].get<double>(), step * (1 + error), 1e-9);
  EXPECT_TRUE(known["step_error"]["why"].is_null());
  for (const Json& kind : known["step_error"]["kinds"]) EXPECT_GE(kind["steps"], 3) << kind;

  const std::string words = eight_b + "--machine h200 --ranks 16 --strategy zero2 --transport efa";
  const Json open = predicted(words);
  EXPECT_TRUE(open["step_seconds"]["low"].is_null());
  EXPECT_TRUE(open["step_seconds"]["high"].is_null());
  EXPECT_TRUE(open["step_error"]["value"].is_null());
  EXPECT_EQ(open["step_error"]["why"], "no step over efa between nodes was measured");
  EXPECT_EQ(open["step_error"]["kinds"][1]["steps"], 0);
  EXPECT_TRUE(open["step_error"]["kinds"][1]["value"].is_null());
  const auto text = run("predict", split_words(words)).output;
  EXPECT_THAT(text, HasSubstr("error      not known: no step over efa between nodes was measured; one device ±"));
  EXPECT_THAT(text, HasSubstr("Predicted for Consist's own programs and kernels on a machine with the figures of h200"));
}

// Shards within a node and replicas across nodes (HSDP), beside shards over all ranks (ZeRO-3, FSDP).
TEST(Predict, HybridShardingIsFasterWhereItsNetworkHasLessToDo) {
  const auto speed = [](const std::string& words, int nodes) {
    const std::string all = "--model llama-3-8b --precision bf16 --batch 1 --ranks " + std::to_string(8 * nodes) + " " + words +
                            " --strategy zero3-offload";
    return predicted_seconds(all) / predicted_seconds(all + "=8+ddp=" + std::to_string(nodes));
  };
  EXPECT_GT(speed("--machine h100 --sequence 2048", 2), 1.1) << "little work to hide gathers behind";
  EXPECT_GT(speed("--machine h100,network=10e9 --sequence 8192", 2), 1.05) << "a slow network";
  EXPECT_GT(speed("--machine h100 --sequence 8192", 8), 1.03) << "many nodes";
  // The rest is as fast: gathers are hidden either way, and a rank of a replica updates twice as many states.
  EXPECT_NEAR(speed("--machine h100 --sequence 8192", 2), 0.99, 0.015);
  EXPECT_NEAR(speed("--machine h200 --sequence 8192", 2), 0.99, 0.015);
}

TEST(Predict, SaysTheTokensOfADayWithFailures) {
  const std::string words =
      "--model llama-3-8b --precision bf16 --sequence 4096 --batch 1 --strategy zero3-offload --ranks 64 --machine h100 ";
  EXPECT_TRUE(predicted(words)["goodput"].is_null());
  const Json rare = predicted(words + "--mtbf 50000")["goodput"],
             often = predicted(words + "--mtbf 500 --checkpoint x --checkpoint-every 100")["goodput"];
  EXPECT_NEAR(rare["failure_seconds"].get<double>(), 50000.0 * 3600 / 64, 1);
  EXPECT_NEAR(rare["checkpoint_bytes"].get<double>(), 8.03e9 * 12, 0.02e9 * 12) << "weights and two moments in f32";
  EXPECT_GT(rare["best"]["goodput"], often["best"]["goodput"]);
  EXPECT_GE(often["best"]["goodput"], often["asked"]["goodput"]);
  EXPECT_GT(often["snapshot"]["goodput"], often["best"]["goodput"]);
  EXPECT_TRUE(rare["asked"].is_null());
  EXPECT_THAT(run("predict", split_words(words + "--restart 5")).output, HasSubstr("--restart has no effect without --mtbf"));
  EXPECT_THAT(run("predict", split_words(words + "--mtbf 5000")).output,
              AllOf(HasSubstr("tokens a day"), HasSubstr("stated, not measured")));
}

TEST(Predict, AsksWhatIf) {
  const std::string two_nodes = eight_b + "--strategy zero3-offload --ranks 16 --machine h200";
  const double fast = predicted_seconds(two_nodes);
  const double slow = predicted_seconds(two_nodes + ",network=1e9");
  EXPECT_GT(slow, 1.5 * fast);
  EXPECT_EQ(predicted(two_nodes + ",ranks-per-node=16,network=1e9")["seconds"]["exposed_communication"].size(), 1U);
}

TEST(Predict, WhatDoesNotFitIsToldWithWhatWould) {
  const std::string too_large = "--model llama-3-8b --precision bf16 --sequence 8192 --ranks 8 --batch 4";
  const auto result = run("predict", split_words(too_large));
  EXPECT_EQ(result.status, 1) << result.output;
  EXPECT_THAT(result.output, HasSubstr("DOES NOT FIT: a rank needs 246 GiB, h200 has 139 GiB."));
  // Each remedy fits, as a run of predict of its own.
  const std::regex remedy("'(--[^']*)' fits: ");
  int found = 0;
  for (std::sregex_iterator at(result.output.begin(), result.output.end(), remedy), end; at != end; ++at, ++found) {
    std::string words = too_large;
    if ((*at)[1].str().find("--batch") != std::string::npos) words = words.substr(0, words.find(" --batch"));
    const Json fits = predicted(words + " " + (*at)[1].str());
    EXPECT_TRUE(fits["fits"].get<bool>()) << (*at)[1];
  }
  EXPECT_GE(found, 3) << result.output;
  const auto hopeless = run("predict", split_words("--model llama-3-70b --ranks 1 --batch 1"));
  EXPECT_EQ(hopeless.status, 1);
  EXPECT_THAT(hopeless.output, HasSubstr("No change that was tried makes it fit"));
}

TEST(Predict, WritesATimelineAndRefusesWhatCannotBe) {
  const TemporaryFolder folder;
  const std::string trace = folder / "trace.json";
  const auto result = run("predict", split_words(eight_b + "--strategy pipeline=2 --ranks 2 --accumulation 2 --trace " + trace));
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("predicted for h200, not measured"), HasSubstr("bubble "), HasSubstr("rank 1: ")));
  std::ifstream file(trace);
  const Json events = Json::parse(file);
  EXPECT_FALSE(events.empty());
  const auto wrong = run("predict", split_words(eight_b + "--machine abacus"));
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.output, HasSubstr("abacus"));
}

TEST(Predict, TheCostOfABillionTokensIsOfThePriceOfTheMachine) {
  const std::string base = "--model llama-tiny --ranks 2 --machine h200 ";
  const Json json = predicted(base + "--price a100=1,h200=3.6");
  EXPECT_NEAR(json["cost_per_billion_tokens"].get<double>(), 2 * 3.6 / 3600 * 1e9 / json["tokens_per_second"].get<double>(),
              1e-9);
  EXPECT_TRUE(predicted(base)["cost_per_billion_tokens"].is_null());
  EXPECT_TRUE(predicted(base + "--price a100=1")["cost_per_billion_tokens"].is_null());
  EXPECT_THAT(run("predict", split_words("--model llama-tiny --ranks 2 --machine cpu --price 1")).output,
              HasSubstr("an hour; energy is not known: the machine's file has no power\n"));
  const auto refused = run("predict", split_words(base + "--price cheap"));
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.output, HasSubstr("--price is 'cheap'; 'cheap' is no number from 0 on"));
}

TEST(Predict, EnergyIsThatOfTheMachinesPower) {
  const std::string base = "--model llama-tiny --ranks 2 ";
  const auto joules = [](const Json& json, double watts) { return 2 * watts * 1e9 / json["tokens_per_second"].get<double>(); };
  const Json limit = predicted(base + "--machine a100");
  EXPECT_NEAR(limit["joules_per_billion_tokens"].get<double>(), joules(limit, 400), 1e-6 * joules(limit, 400));
  EXPECT_EQ(limit["energy_origin"], "at most, by the power limit of the data sheet (400 W)");
  const auto text = run("predict", split_words(base + "--machine a100")).output;
  EXPECT_THAT(text, HasSubstr("J per billion tokens, 400 W a device; at most, by the power limit of the data sheet (400 W)\n"));
  EXPECT_EQ(predicted(base + "--machine h200")["energy_origin"], "by powers measured on such a machine");
  EXPECT_TRUE(predicted(base + "--machine cpu")["joules_per_billion_tokens"].is_null());
  EXPECT_THAT(run("predict", split_words(base + "--machine cpu")).output, Not(HasSubstr("energy")));

  // 500 W while the compute queue works, 100 W while it waits.
  const Json given = predicted(base + "--machine h200,power=500,idle-power=100");
  const Json& parts = given["seconds"];
  double busy = 0;
  for (const char* part : {"products", "attention", "memory_bound", "optimizer"}) busy += parts[part].get<double>();
  const double share = busy / given["step_seconds"]["value"].get<double>(), watts = 100 + 400 * share;
  EXPECT_LT(share, 0.95) << "else idle power is not seen";
  EXPECT_NEAR(given["device_watts"].get<double>(), watts, 1e-6 * watts);
  EXPECT_NEAR(given["joules_per_billion_tokens"].get<double>(), joules(given, watts), 1e-6 * joules(given, watts));
  EXPECT_EQ(given["energy_origin"], "by powers given");
  const auto refused = run("predict", split_words(base + "--machine a100,power=500"));
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.output, HasSubstr("add idle-power=W"));
}

}  // namespace
}  // namespace consist
