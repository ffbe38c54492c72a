// --transport auto: transports from outside take part by what they say of themselves; runs say what was chosen and why, and
// record it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/archive/reader.h"
#include "launch/cli/config_of_archive.h"
#include "launch/compare/predicted.h"
#include "tests/commands/predicted.h"
#include "tests/commands/run_archives.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using namespace test;

const std::string with_tubes = "--plugin " PNEUMATIC_TRANSPORT " ";
const std::string tiny =
    "--model llama-tiny --from-scratch --dataset synthetic --device cpu --cpu.threads 1 --strategy ddp --ranks 2 --batch 1 "
    "--sequence 16 --steps 1 ";

TEST(AutomaticTransport, OneFromOutsideTakesPartWhereTheMachineKnowsIt) {
  const std::string words =
      with_tubes + "--model qwen3-0.6b --precision bf16 --sequence 1024 --batch 1 --ranks 4 --strategy ddp ";
  EXPECT_EQ(predicted(words + "--machine h200,ranks-per-node=1,pneumatic-network=1e12")["links"][0]["transport"], "pneumatic");
  EXPECT_EQ(predicted(words + "--machine h200,pneumatic-network=1e12")["links"][0]["transport"], "nvlink") << "it connects nodes";
  const std::string unknown = words + "--machine h200,ranks-per-node=1 ";
  EXPECT_EQ(predicted(unknown)["links"][0]["transport"], "efa");
  EXPECT_THAT(run("predict", split_words(unknown)).output,
              HasSubstr("data over efa across nodes (--transport auto; not pneumatic: h200 has no such links "
                        "between nodes)"));
}

TEST(AutomaticTransport, ARunSaysWhatWasChosenAndWhyAndRecordsIt) {
  const TemporaryFolder folder;
  const std::string archive = folder.path() / "run.h5";
  const auto result = run("train", split_words(with_tubes + tiny + "--archive " + archive));
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output,
              HasSubstr("transports: data over socket within nodes (--transport auto; not pneumatic: its tubes are blocked)"));
  const ArchiveReader reader(archive);
  const Json config = Json::parse(reader.text("/config")), axis = Json::parse(reader.text("/topology"))["axes"][0];
  EXPECT_EQ(config["transport"], "auto");
  EXPECT_EQ(config["chosen_transport"], "socket");
  EXPECT_EQ(axis["transport"], "socket");
  EXPECT_EQ(axis["asked"], "auto");
  // By --config the run goes over what was chosen then.
  std::vector<std::string> notes;
  const auto transport_of = [&](const std::vector<std::string>& given) {
    for (const ConfigEntry& entry : config_of_archive(
             archive, [&](const std::string& name) { return std::find(given.begin(), given.end(), name) != given.end(); },
             notes)) {
      if (entry.name == "transport") return entry.value.get<std::string>();
    }
    return std::string();
  };
  EXPECT_EQ(transport_of({"steps"}), "socket");
  EXPECT_EQ(transport_of({"machine"}), "auto") << "another machine has other transports";
}

TEST(AutomaticTransport, ARunTakesTheOneThatIsPreferredAndThere) {
  const auto result = run("train", split_words(with_tubes + tiny + "--pneumatic.blocked false"));
  EXPECT_NE(result.status, 0);
  EXPECT_THAT(result.output, HasSubstr("transport pneumatic: there is no air in the tubes"));
}

TEST(AutomaticTransport, NamesThatAreNoStrategyAndNoAxisAreRefused) {
  const auto result =
      run("predict", split_words("--model llama-tiny --ranks 2 --strategy ddp --machine cpu --transport socket+zero2=socket"));
  EXPECT_EQ(result.status, 2) << result.output;
  EXPECT_THAT(result.output,
              HasSubstr("--transport names 'zero2', which is not in --strategy ddp and is no axis of its mesh (data)"));
}

/// Archives of earlier versions do not say what was chosen in their configuration; what moved the bytes stands in all of them.
TEST(AutomaticTransport, BesideARunThePredictionHasTheTransportsOfItsArchive) {
  const TemporaryFolder folder;
  const std::string archive = folder.path() / "run.h5";
  test::finish_run(*test::write_run(archive, {}));  // over nvlink
  PluginHost host({});
  RunConfig config;
  config.model = "qwen3-0.6b";
  config.precision = "bf16";
  config.dataset = "synthetic";
  config.ranks = 2;
  config.batch = 1;
  config.sequence = 1024;
  const double automatic = launch::predicted_seconds(config, archive, host);
  config.transport = "socket";
  EXPECT_EQ(launch::predicted_seconds(config, archive, host), automatic);
  EXPECT_LT(automatic,
            0.2 * predicted_seconds("--model qwen3-0.6b --precision bf16 --ranks 2 --batch 1 --sequence 1024 --machine h200 "
                                    "--strategy ddp --transport socket"));
}

TEST(AutomaticTransport, IsWhatCollectivesAreExpectedToGoOver) {
  const auto result = run("bench", split_words("expect --members 4,16 --bytes 1e9 --machine h200"));
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("over nvlink within a node, efa between nodes"), Not(HasSubstr("is not known"))));
}

}  // namespace
}  // namespace consist
