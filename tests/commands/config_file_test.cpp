// --config: files are read with the strictness of the command line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/commands/config_file_case.h"

namespace consist {
namespace {

using test::host;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class ConfigFile : public test::ConfigFileTest {};

constexpr const char* toml = R"(# a comment
model = "llama-tiny"
precision = "bf16"
strategy = "zero3-offload"
learning-rate = 1
steps = 30
memory-limit = "2Gi"
pack = false
schedule = "cosine"

[cosine]
warmup = 5
final-rate = 0.2
[zero3-offload]
offload-optimizer.device = "cpu"
reduce-bucket-size = 5e7
[ddp]
)";

TEST_F(ConfigFile, TomlHasOptionsByNameAndThoseOfPartsInTables) {
  const RunConfig c = config_of(file("run.toml", toml));
  EXPECT_EQ(c.model, "llama-tiny");
  EXPECT_EQ(c.precision, "bf16");
  EXPECT_EQ(text_of(c.strategies), "zero3-offload");
  EXPECT_EQ(c.learning_rate, 1);
  EXPECT_EQ(c.steps, 30);
  EXPECT_EQ(c.memory_limit, std::int64_t{2} << 30);
  EXPECT_FALSE(c.pack);
  EXPECT_EQ(c.plugin_options.at("cosine"), (std::map<std::string, std::string>{{"warmup", "5"}, {"final-rate", "0.2"}}));
  EXPECT_EQ(c.plugin_options.at("zero3-offload"),
            (std::map<std::string, std::string>{{"offload-optimizer.device", "cpu"}, {"reduce-bucket-size", "50000000.0"}}));
  EXPECT_EQ(c.sequence, RunConfig().sequence);
}

TEST_F(ConfigFile, JsonSaysTheSame) {
  const std::string json =
      R"({"model": "llama-tiny", "precision": "bf16", "strategy": "zero3-offload", "learning-rate": 1, "steps": 30,
    "memory-limit": "2Gi", "pack": false, "schedule": "cosine", "cosine": {"warmup": 5, "final-rate": 0.2},
    "zero3-offload": {"offload-optimizer": {"device": "cpu"}, "reduce-bucket-size": 5e7}})";
  EXPECT_EQ(config_of(file("run.json", json)).to_json(), config_of(file("run.toml", toml)).to_json());
}

TEST_F(ConfigFile, TheCommandLineWins) {
  const RunConfig c = config_of(file("run.toml", toml),
                                {"--steps", "7", "--cosine.warmup=2", "--pack", "on", "--strategy", "ddp", "--precision=fp32"});
  EXPECT_EQ(c.steps, 7);
  EXPECT_TRUE(c.pack);
  EXPECT_EQ(c.plugin_options.at("cosine").at("warmup"), "2");
  EXPECT_EQ(c.plugin_options.at("cosine").at("final-rate"), "0.2");
  EXPECT_EQ(text_of(c.strategies), "ddp");
}

TEST_F(ConfigFile, NoRecomputationReplacesItsLayers) {
  const std::string some = file("some.toml", "model = 'm'\nrecompute = 'full'\nrecompute-layers = '0-3'\n");
  const RunConfig none = config_of(some, {"--recompute", "none"});
  EXPECT_FALSE(none.recompute.any());
  EXPECT_EQ(layers_text(none.recompute), "");
  EXPECT_EQ(layers_text(config_of(some, {"--recompute", "swiglu"}).recompute), "0-3") << "the layers stay";
  EXPECT_THAT(refusal_of(some, {"--recompute", "none", "--recompute-layers", "0-1"}), HasSubstr("--recompute is none"));
}

TEST_F(ConfigFile, WhatIsWrongIsNamedWithFileLineAndKey) {
  const std::string at = "run.toml, line 2: ";
  EXPECT_THAT(refusal("model = 'm'\nstepz = 3\n"),
              AllOf(HasSubstr(at + "there is no option 'stepz'"), HasSubstr("Did you mean 'steps'?")));
  EXPECT_THAT(refusal("model = 'm'\nwarmup = 3\n"),
              AllOf(HasSubstr(at + "there is no option 'warmup'"), HasSubstr("--cosine.warmup")));
  EXPECT_THAT(refusal("[cosine]\nwarmpu = 3\n"),
              AllOf(HasSubstr(at + "plugin 'cosine' has no option 'warmpu'"), HasSubstr("Did you mean 'warmup'?")));
  EXPECT_THAT(refusal("model = 'm'\ncosin.warmup = 3\n"),
              AllOf(HasSubstr(at), HasSubstr("there is no plugin 'cosin'"), HasSubstr("'cosine'")));
  EXPECT_THAT(refusal("model = 'm'\nsteps = '3'\n"),
              HasSubstr(at + "steps is \"3\"; it must be a whole number of 64 bits, at least 1, without quotes"));
  EXPECT_THAT(refusal("model = 'm'\nsteps = 1.5\n"), HasSubstr(at + "steps is 1.5; it must be a whole number"));
  EXPECT_THAT(refusal("model = 'm'\nsteps = 0\n"), HasSubstr(at + "steps is '0'; it must be at least 1"));
  EXPECT_THAT(refusal("model = 'm'\nlearning-rate = inf\n"), HasSubstr(at + "learning-rate is"));
  EXPECT_THAT(refusal("model = 'm'\npack = 'on'\n"), HasSubstr(at + "pack is \"on\"; it must be true or false"));
  EXPECT_THAT(refusal("model = 'm'\ndevice = 3\n"), HasSubstr(at + "device is 3; it must be a text in quotes"));
  EXPECT_THAT(refusal("model = 'm'\ncosine.final-rate = 2\n"),
              HasSubstr(at + "cosine.final-rate is '2'; it must be from 0 to 1"));
  EXPECT_THAT(refusal("model = 'm'\nstrategy = 'ddp+'\n"), HasSubstr(at + "strategy: --strategy 'ddp+' has an empty part"));
  EXPECT_THAT(refusal("model = 'm'\nobserve = 'a,a'\n"), HasSubstr(at + "observe: --observe is 'a,a'"));
  EXPECT_THAT(refusal("model = 'm'\nrecompute-layers = '3-1'\nrecompute = 'full'\n"),
              HasSubstr(at + "recompute-layers: --recompute-layers '3-1' ends before it begins"));
  EXPECT_THAT(refusal("model = 'm'\nsteps = [1, 2]\n"),
              HasSubstr(at + "steps is a list; several values are for consist compare"));
  EXPECT_THAT(refusal("model = 'm'\nsteps = 1979-05-27\n"), HasSubstr(at + "steps is a date"));
  EXPECT_THAT(refusal("model = 'm'\nmodel = 'n'\n"), HasSubstr("run.toml, line 2"));
  EXPECT_THAT(refusal("model = 'm'\nconfig = 'other.toml'\n"), HasSubstr(at + "config belongs on the command line"));
  EXPECT_THAT(refusal("model = 'm'\nthis is no toml\n"), HasSubstr("run.toml, line 2, column"));
  EXPECT_THAT(refusal("a.b.c.d.e.f.g.h.i.j = 1\n"), HasSubstr("more than 8 tables"));
}

TEST_F(ConfigFile, OfJsonTheLineIsKnownToo) {
  const auto refusal_of_json = [&](const std::string& text) { return refusal_of(file("run.json", text)); };
  EXPECT_THAT(refusal_of_json("{\"model\": \"a\\nb\",\n\n \"cosine\": {\"warmup\": 1,\n \"final-rate\": 2}, \"steps\": 1}"),
              HasSubstr("run.json, line 4: cosine.final-rate is '2'; it must be from 0 to 1"));
  EXPECT_THAT(refusal_of_json("{\"cosine\": {\"warmup\": 1\n},\n \"steps\":\n\"x\"}"),
              HasSubstr("run.json, line 3: steps is \"x\"; it must be a whole number"));
  EXPECT_THAT(refusal_of_json("{\"a\": [{\"b\": 1}],\n\"b\": 2}"), HasSubstr("run.json, line 1: a is [{\"b\":1}]"));
  EXPECT_THAT(refusal_of_json("{\"model\": \"a\",\n\"steps\": 1,}"),
              HasSubstr("run.json is no valid JSON: parse error at line 2"));
}

TEST_F(ConfigFile, EpochsThatAreNoneAreStatedByFilesAlone) {
  const std::string path = file("run.toml", "model = 'llama-tiny'\nsteps = 3\nepochs = 0\n");
  EXPECT_EQ(config_of(path).steps, 3);
  EXPECT_EQ(config_of(path, {"--epochs", "2"}).epochs, 2);
  EXPECT_THAT(words_of(read_config_file(path), {}, host()), ElementsAre("--model=llama-tiny", "--steps=3"));
  EXPECT_THAT(to_toml(config_of(path), host()), Not(HasSubstr("epochs")));
  EXPECT_THAT(refusal_of(path, {"--epochs", "0"}), HasSubstr("--epochs is '0'; it must be from 1 to 1000000"));
  EXPECT_THAT(refusal("epochs = -1\n"), HasSubstr("run.toml, line 1: epochs is '-1'; it must be from 1 to 1000000"));
}

TEST_F(ConfigFile, FilesAreBoundedAndOfAKnownFormat) {
  EXPECT_THAT(refusal_of(file("run.yaml", "")), HasSubstr("must be .toml, .json, or .h5"));
  EXPECT_THAT(refusal_of(folder_ / "none.toml"), HasSubstr("none.toml"));
  EXPECT_THAT(refusal("#" + std::string(2 << 20, 'x')), HasSubstr("run.toml"));
  EXPECT_THAT(refusal("steps = " + std::string(2000, '[') + std::string(2000, ']')), HasSubstr("run.toml"));
  EXPECT_THAT(refusal_of(file("run.json", "[1]")), HasSubstr("no JSON object"));
  EXPECT_THAT(refusal_of(file("run.json", R"({"steps": 1, "steps": 2})")), AllOf(HasSubstr("run.json"), HasSubstr("steps")));
  EXPECT_THAT(refusal_of(file("run.json", R"({"steps": null})")), HasSubstr("run.json, line 1: steps is null"));
  EXPECT_THAT(refusal_of(file("run.json", R"({"stepz": 1})")), HasSubstr("Did you mean 'steps'?"));
  EXPECT_THAT(refusal_of("/dev/zero"), HasSubstr("its ending says no format"));
}

TEST_F(ConfigFile, ListsOfAComparisonBecomeItsWords) {
  const std::string path = file("sweep.toml", R"(
model = ["llama-tiny", "qwen3-tiny"]
machine = ["h100,products=0.6", "h200"]
recompute = ["none", "swiglu,rms_norm"]
from-scratch = true
resume = false
steps = 3
plugin = ["a", "b"]
[text]
files = ["a.txt,b.txt", "c.txt"]
)");
  EXPECT_THAT(words_of(read_config_file(path), {"--steps=4"}, host()),
              ElementsAre("--model=llama-tiny,qwen3-tiny", "--machine=h100+products=0.6,h200", "--recompute=none,swiglu+rms_norm",
                          "--from-scratch", "--plugin=a", "--plugin=b", "--text.files=[a.txt,b.txt],[c.txt]"));
  EXPECT_THROW(words_of(read_config_file(file("bad.toml", "archive = 'a.h5'")), {}, host()), UsageError);
  EXPECT_THROW(words_of(read_config_file(file("bad.toml", "stepz = 1")), {}, host()), UsageError);
}

}  // namespace
}  // namespace consist
