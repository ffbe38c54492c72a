// Predictions by transport: their order, axes with one each, transports that cannot be, and what is not known.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/commands/predicted.h"

namespace consist {
namespace {

using namespace test;

const std::string four = "--model qwen3-0.6b --precision bf16 --sequence 1024 --batch 1 --ranks 4 ";

TEST(PredictTransports, TheFasterOneHasTheShorterStep) {
  const std::string within = four + "--strategy zero3-offload --machine h200 ";
  const double unnamed = predicted_seconds(within), nvlink = predicted_seconds(within + "--transport nvlink"),
               socket = predicted_seconds(within + "--transport socket");
  EXPECT_EQ(unnamed, nvlink) << "by which `node` was measured";
  EXPECT_GT(socket, 5 * nvlink);
  const std::string across = four + "--strategy zero3-offload --machine h200,ranks-per-node=1 ";
  const double efa = predicted_seconds(across + "--transport efa");
  EXPECT_GT(efa, nvlink);
  EXPECT_GT(predicted_seconds(across + "--transport socket"), 5 * efa);
}

TEST(PredictTransports, EachAxisHasItsOwn) {
  const std::string hybrid = four + "--strategy zero3-offload=2+ddp=2 --machine h200 --transport ";
  const double fast = predicted_seconds(hybrid + "nvlink"), mixed = predicted_seconds(hybrid + "nvlink,ddp=socket"),
               slow = predicted_seconds(hybrid + "socket"), turned = predicted_seconds(hybrid + "socket,ddp=nvlink");
  EXPECT_GT(mixed, 1.2 * fast);
  EXPECT_LT(mixed, 0.8 * slow);
  EXPECT_GT(turned, mixed) << "zero3's axis has more to send than ddp's";
  EXPECT_LT(turned, slow);
  const Json json = predicted(hybrid + "nvlink,ddp=socket");
  ASSERT_EQ(json["links"].size(), 2U);
  EXPECT_EQ(json["links"][0],
            (Json{{"axis", "data.0"}, {"transport", "socket"}, {"automatic", false}, {"crosses_nodes", false}, {"known", true}}));
  EXPECT_EQ(json["links"][1]["transport"], "nvlink");
  const auto text = run("predict", split_words(hybrid + "nvlink,ddp=socket"));
  EXPECT_THAT(text.output, HasSubstr("links      data.0 over socket within nodes, data.1 over nvlink within nodes\n"));
}

TEST(PredictTransports, AutoIsTheFastestThatTheMachineHasWithinANodeAndBetweenNodes) {
  const std::string words = four + "--strategy zero2=2x2 --machine h200,ranks-per-node=2 ";
  EXPECT_EQ(predicted(words)["links"], Json::parse(R"([
    {"axis": "data.0", "transport": "efa", "automatic": true, "crosses_nodes": true, "known": true},
    {"axis": "data.1", "transport": "nvlink", "automatic": true, "crosses_nodes": false, "known": true}])"));
  EXPECT_THAT(run("predict", split_words(words)).output,
              AllOf(HasSubstr("links      data.0 over efa across nodes, data.1 over nvlink within nodes (--transport auto)\n"),
                    Not(HasSubstr("is not known"))));
  const double automatic = predicted_seconds(words);
  EXPECT_EQ(predicted_seconds(words + "--transport auto"), automatic);
  EXPECT_EQ(predicted_seconds(words + "--transport nvlink+data.0=efa"), automatic) << "by axis of the mesh";
  const Json on_processors = predicted("--model llama-tiny --ranks 2 --strategy ddp --machine cpu")["links"][0];
  EXPECT_EQ(on_processors["transport"], "socket");
  EXPECT_EQ(predicted_seconds("--model llama-tiny --ranks 2 --strategy ddp --machine cpu --transport socket"),
            predicted_seconds("--model llama-tiny --ranks 2 --strategy ddp --machine cpu"));
}

/// As people say EFA: between nodes, and what there is within them.
TEST(PredictTransports, IbConnectsNodesAndIsTakenWhereItIsNamed) {
  const std::string words = "--model qwen3-0.6b --precision bf16 --sequence 1024 --batch 1 --ranks 16 --strategy zero2=2x8 ";
  const Json json = predicted(words + "--machine a100 --transport ib");
  EXPECT_EQ(json["links"][0]["transport"], "ib");
  EXPECT_EQ(json["links"][1]["transport"], "nvlink");
  EXPECT_LT(json["step_seconds"], predicted(words + "--machine a100 --transport efa")["step_seconds"])
      << "a NIC of 200 Gbit/s for each GPU instead of an eighth of 400";
  EXPECT_EQ(predicted(words + "--machine a100")["links"][0]["transport"], "efa") << "as before there was ib";
}

TEST(PredictTransports, GpusWithoutNvlinkUseShmWithinANode) {
  const std::string words = four + "--strategy zero2=2x2 --machine l40s,ranks-per-node=2 ";
  const Json json = predicted(words)["links"];
  EXPECT_EQ(json[0]["transport"], "efa");
  EXPECT_EQ(json[1]["transport"], "shm");
  EXPECT_LT(predicted_seconds(four + "--strategy ddp --machine l40s"),
            0.6 * predicted_seconds(four + "--strategy ddp --machine l40s --transport socket"));
  const auto across = run("predict", split_words(words + "--transport shm"));
  EXPECT_EQ(across.status, 2);
  EXPECT_THAT(across.output, HasSubstr("PCIe and host memory connect the GPUs of one host; transports efa, ib and socket"));
}

/// Strategies that --transport does not name use `auto`, as in a run.
TEST(PredictTransports, WhatIsNotNamedIsAutomatic) {
  const std::string hybrid = four + "--strategy zero3-offload=2+ddp=2 --machine h200 --transport ";
  EXPECT_EQ(predicted_seconds(hybrid + "ddp=socket"), predicted_seconds(hybrid + "nvlink+ddp=socket"));
  EXPECT_EQ(predicted_seconds(hybrid + "nvlink,ddp=socket"), predicted_seconds(hybrid + "nvlink+ddp=socket"))
      << "the older spelling";
}

/// People who say EFA mean EFA across nodes and NVLink within them.
TEST(PredictTransports, EfaConnectsNodesAndNvlinkTheirInsides) {
  const std::string words = "--model qwen3-0.6b --precision bf16 --sequence 1024 --batch 1 --ranks 16 --machine h200 --strategy ";
  for (const char* strategy : {"zero3-offload=8+ddp=2 ", "zero2=2x8 ", "tp-sp=2+zero2 "}) {
    const Json json = predicted(words + strategy + "--transport efa");
    ASSERT_EQ(json["links"].size(), 2U) << strategy;
    EXPECT_EQ(json["links"][0]["transport"], "efa") << strategy;
    EXPECT_EQ(json["links"][1]["transport"], "nvlink") << strategy;
    EXPECT_EQ(json["step_seconds"], predicted(words + strategy)["step_seconds"]) << strategy;
  }
}

TEST(PredictTransports, WhatTheMachineDoesNotKnowIsSaidOnce) {
  const std::string words = "--model llama-tiny --ranks 4 --strategy zero2=2x2 --machine cpu --transport efa ";
  EXPECT_EQ(predicted_seconds(words), predicted_seconds("--model llama-tiny --ranks 4 --strategy zero2=2x2 --machine cpu "));
  EXPECT_FALSE(predicted(words)["links"][0]["known"].get<bool>());
  for (const auto& [command, more] : {std::pair{"predict", ""}, {"advise", ""}, {"explain", "--summary"}}) {
    const auto result = run(command, split_words(words + more));
    EXPECT_EQ(result.status, 0) << result.output;
    const std::string sentence = "How fast 'efa' is within a node of cpu is not known (known: socket)";
    const std::size_t at = result.output.find(sentence);
    ASSERT_NE(at, std::string::npos) << command << result.output;
    EXPECT_EQ(result.output.find(sentence, at + 1), std::string::npos) << command;
    EXPECT_THAT(result.output, HasSubstr("or give efa-node=BYTES/S behind --machine"));
  }
  EXPECT_THAT(
      run("predict", split_words("--model llama-tiny --ranks 4 --strategy ddp --machine cpu,efa-node=1e8 --transport efa"))
          .output,
      Not(HasSubstr("is not known")));
}

TEST(PredictTransports, WhatARunWouldRefuseIsRefused) {
  for (const auto& [words, says] :
       {std::pair{"--machine h200,ranks-per-node=2 --transport nvlink",
                  "transport 'nvlink' cannot connect the groups of axis 'data' (strategy ddp), which lie on "
                  "several nodes of h200 with 2 ranks a node: NVLink connects the GPUs of one host"},
        {"--machine h200 --transport efa", "give --efa.within-host=efa"},
        {"--machine cpu --transport nvlink", "NVLink connects GPUs, and a 'cpu' device is none"}}) {
    for (const char* command : {"predict", "advise"}) {
      const auto result = run(command, split_words(four + "--strategy ddp " + words));
      EXPECT_EQ(result.status, 2) << result.output;
      EXPECT_THAT(result.output, HasSubstr(says));
    }
  }
  EXPECT_GT(predicted_seconds(four + "--strategy ddp --machine h200 --transport efa --efa.within-host efa"), 0);
  EXPECT_GT(predicted_seconds(four + "--strategy tp-sp=2+ddp --machine h200,ranks-per-node=2 --transport nvlink,ddp=efa"), 0)
      << "each axis by itself";
}

TEST(PredictTransports, CollectivesOverAxesOfSeveralAreRefused) {
  const std::string words = "--model llama-tiny --sequence 64 --ranks 4 --strategy cp=2+zero2 --machine cpu --transport ";
  EXPECT_EQ(run("predict", split_words(words + "socket")).status, 0);
  const auto result = run("predict", split_words(words + "socket,cp=efa"));
  EXPECT_EQ(result.status, 2) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("need one transport"), HasSubstr("'efa'"), HasSubstr("'socket'")));
  const auto two = run("predict", split_words("--model llama-tiny --ranks 2 --strategy ddp --transport socket,efa"));
  EXPECT_EQ(two.status, 2);
  EXPECT_THAT(two.output, HasSubstr("--transport 'socket,efa' names two transports, socket and efa, for all strategies"));
}

}  // namespace
}  // namespace consist
