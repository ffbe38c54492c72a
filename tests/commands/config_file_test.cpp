// --config and --print-config: files are read with the strictness of the command line, and what is written is read back as the
// same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "consist/error.h"
#include "core/archive/reader.h"
#include "core/config/option_value.h"
#include "launch/run_options.h"
#include "tests/child_process.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

PluginHost& host() {
  static PluginHost host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
  return host;
}

class ConfigFile : public testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text) const {
    write_whole(folder_ / name, text);
    return folder_ / name;
  }
  RunConfig config_of(const std::string& path, std::vector<std::string> words = {}) const {
    words.insert(words.begin(), {"--config", path});
    return make_config(parse_run(words), host());
  }
  std::string refusal_of(const std::string& path, const std::vector<std::string>& words = {}) const {
    try {
      config_of(path, words);
    } catch (const Error& error) {
      EXPECT_LT(std::string(error.what()).size(), 2000U);
      return error.what();
    }
    return "nothing";
  }
  std::string refusal(const std::string& toml) const { return refusal_of(file("run.toml", toml)); }
  const TemporaryFolder folder_;
};

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
offload_optimizer.device = "cpu"
reduce_bucket_size = 5e7
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
            (std::map<std::string, std::string>{{"offload_optimizer.device", "cpu"}, {"reduce_bucket_size", "50000000.0"}}));
  EXPECT_EQ(c.sequence, RunConfig().sequence);
}

TEST_F(ConfigFile, JsonSaysTheSame) {
  const std::string json =
      R"({"model": "llama-tiny", "precision": "bf16", "strategy": "zero3-offload", "learning-rate": 1, "steps": 30,
    "memory-limit": "2Gi", "pack": false, "schedule": "cosine", "cosine": {"warmup": 5, "final-rate": 0.2},
    "zero3-offload": {"offload_optimizer": {"device": "cpu"}, "reduce_bucket_size": 5e7}})";
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

// The table's defaults are those of RunConfig, and all texts of values are read back as the same values.
// As compare sets them, row by row.
TEST(OptionTable, TransportsTakeThePlaceOfAllThatWereThere) {
  RunConfig config;
  const RunOption& transport = *find_run_option("transport");
  set_option(config, transport, "tp-sp=nvlink,socket", "--transport");
  set_option(config, transport, "ddp=efa", "--transport");
  EXPECT_EQ(config.transport_of, (std::map<std::string, std::string>{{"ddp", "efa"}}));
  EXPECT_EQ(config.transport, "auto") << "what is not named";
}

TEST(OptionTable, DefaultsAreThoseOfAConfiguration) {
  RunConfig c;
  for (const RunOption& option : run_option_table()) {
    if (option.set != nullptr) set_option(c, option, option.spec.fallback, "default");
    EXPECT_EQ(option.set == nullptr, option.get == nullptr) << option.spec.name;
    EXPECT_EQ(find_run_option(option.spec.name), &option) << "another one has the same name";
  }
  EXPECT_EQ(c.to_json(), RunConfig().to_json());
  EXPECT_EQ(c.archive, RunConfig().archive);
  EXPECT_EQ(c.overwrite, RunConfig().overwrite);
}

/// A legal value of an option, at random; of options that depend on each other, one that goes with `config`.
std::string drawn(const OptionSpec& spec, const RunConfig& config, std::mt19937& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const auto one_of = [&](const std::vector<std::string>& texts) { return texts[random() % texts.size()]; };
  const std::string name = spec.name;
  if (name == "strategy") return one_of({"zero2+tp-sp=2", "pipeline=2+ddp", "zero2=*x4", "tp-sp=2x2"});
  if (name == "dataset") return one_of({"tokens", "text=0.7+jsonl@a=0.3"});
  if (name == "transport") return one_of({"nvlink", "socket+" + config.strategies.front().name + "=efa"});
  if (name == "recompute") return one_of({"full", "swiglu,rms_norm"});
  if (name == "recompute-layers") return config.recompute.any() ? one_of({"1-3", "2-2"}) : "";
  if (name == "offload-activations") return one_of({"all", "1-3"});
  if (name == "observe") return one_of({"progress", "progress,other"});
  if (name == "price") return one_of({"2.5", "h200=2.5,a100=1.2"});
  if (name == "freeze") return config.freeze.trained.empty() ? one_of({"*norm*", "model.embed_tokens.*,*norm*"}) : "";
  if (name == "train-only") return config.freeze.frozen.empty() ? "*norm*" : "";
  switch (spec.kind) {
    case OptionKind::flag:
      return one_of({"true", "false"});
    case OptionKind::choice:
      return one_of(choices_of(spec));
    case OptionKind::text: {
      const std::vector<std::string> letters{" ",    "\"",   "'", "\\", "#", "=", "[", "]", "\n", "\t",
                                             "\x01", "\x7f", "a", "Z",  "0", ".", ",", "-", "_",  "\u00e9"};
      std::string text;
      for (int i = below(12); i > 0; --i) text += one_of(letters);
      return text;
    }
    default:
      break;
  }
  for (int tries = 0; tries < 200; ++tries) {
    const std::string text = spec.kind == OptionKind::real
                                 ? toml_value(spec, std::to_string(static_cast<double>(below(1'000'000)) / 1e6))
                                 : std::to_string(1 + below(64));
    try {
      return legal_value(spec, text, "drawn");
    } catch (const UsageError&) {
    }
  }
  return spec.fallback;
}

/// The same in JSON, without options of parts.
std::string to_json_file(const RunConfig& config) {
  nlohmann::ordered_json json;
  for (const RunOption& option : run_option_table()) {
    const bool follows = std::string_view(option.spec.name) == "steps" && config.epochs > 0;
    if (option.get != nullptr && !follows) json[option.spec.name] = option.get(config);
  }
  return json.dump();
}

/// All options of the table, those too that archives do not have.
std::string every_option_of(const RunConfig& config) {
  std::string text;
  for (const RunOption& option : run_option_table()) text += std::string(option.spec.name) + " " + text_in(config, option) + "\n";
  return text;
}

// Each row of the table by itself, at a value that is not its default: on the command line, in TOML and in JSON.
TEST_F(ConfigFile, EachOptionSaysTheSameInEveryPlace) {
  std::mt19937 random(3);
  for (const RunOption& option : run_option_table()) {
    if (option.set == nullptr) continue;
    const std::string name = option.spec.name;
    RunConfig c;
    std::vector<std::string> words;
    const auto set = [&](const std::string& of, const std::string& value) {
      set_option(c, *find_run_option(of), value, of);
      words.push_back("--" + of + (find_run_option(of)->is_switch() ? "" : "=" + value));
    };
    if (name != "model") set("model", "llama-tiny");
    if (name == "recompute-layers") set("recompute", "full");
    if (name.starts_with("checkpoint-") || name == "resume") set("checkpoint", "folder");
    const std::string fallback = text_in(RunConfig(), option);
    std::string value = fallback;
    while (value == fallback || value.empty()) value = legal_value(option.spec, drawn(option.spec, c, random), name);
    set(name, value);
    if (name == "global-batch") {  // else one of these follows from it
      words.push_back("--batch=" + std::to_string(c.batch));
      words.push_back("--accumulation=" + std::to_string(c.accumulation));
    }
    ASSERT_NE(text_in(c, option), fallback) << name;
    const std::string expected = every_option_of(c);
    EXPECT_EQ(every_option_of(make_config(parse_run(words), host())), expected) << name << " on the command line";
    EXPECT_EQ(every_option_of(config_of(file("one.toml", to_toml(c, host())))), expected) << name << " in TOML";
    EXPECT_EQ(every_option_of(config_of(file("one.json", to_json_file(c)))), expected) << name << " in JSON";
  }
}

// All options at once, those of all plugins included.
TEST_F(ConfigFile, WhatIsPrintedIsReadBackAsTheSame) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    RunConfig c;
    for (const RunOption& option : run_option_table()) {
      if (option.set == nullptr || random() % 2 == 0) continue;
      set_option(c, option, drawn(option.spec, c, random), "drawn");
    }
    if (c.model.empty()) c.model = "llama-tiny";
    if (c.epochs > 0) c.steps = RunConfig().steps;  // they follow from the data
    if (c.checkpoint.empty()) c.checkpoint = "folder";
    if (c.global_batch > 0 && random() % 2 == 0) (random() % 2 == 0 ? c.batch : c.global_batch) = 0;
    for (const PluginFile& found : host().files()) {
      if (!found.problem.empty()) continue;
      for (const OptionSpec& spec : host().option_table(found.kind, found.name)) {
        if (random() % 3 == 0) c.plugin_options[found.name][spec.name] = legal_value(spec, drawn(spec, c, random), "drawn");
      }
    }
    const std::string text = to_toml(c, host());
    const RunConfig again = config_of(file("again.toml", text));
    ASSERT_EQ(again.to_json(), c.to_json()) << text;
    ASSERT_EQ(every_option_of(again), every_option_of(c)) << text;
    ASSERT_EQ(to_toml(again, host()), text);
  }
}

TEST_F(ConfigFile, DefaultsOfAFileAreNotNotedAsWithoutEffect) {
  RunConfig c;
  c.model = "llama-tiny";
  const std::string path = file("run.toml", to_toml(c, host()));
  EXPECT_THAT(config_of(path).notes, testing::IsEmpty());
  EXPECT_THAT(config_of(path, {"--checkpoint-keep", "2"}).notes, ElementsAre(HasSubstr("--checkpoint-keep has no effect here")));
}

TEST_F(ConfigFile, PathsOfPluginsArePrintedToo) {
  RunConfig c;
  c.model = "llama-tiny";
  const std::vector<std::string> paths{"a folder/\"one\"", "two.so"};
  const std::string path = file("run.toml", to_toml(c, host(), paths));
  EXPECT_EQ(plugin_paths(parse_run({"--config", path})), paths);
  EXPECT_THAT(plugin_paths(parse_run({"--config", path, "--plugin", "three"})), ElementsAre("three"));
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

class Repeated : public ConfigFile {
 protected:
  test::ChildResult consist(std::vector<std::string> words) const {
    words.insert(words.begin(), CONSIST_BINARY_DIR "/bin/consist");
    return test::run_child(words);
  }
  const std::vector<std::string> small_{
      "train", "--model", "llama-tiny", "--device", "cpu", "--cpu.threads", "1",   "--dataset",    "synthetic", "--sequence",
      "8",     "--batch", "1",          "--steps",  "3",   "--schedule",    "wsd", "--wsd.warmup", "1"};
};

TEST_F(Repeated, AnArchivesRunIsRepeated) {
  std::vector<std::string> first = small_;
  first.insert(first.end(), {"--archive", folder_ / "first.h5", "--checkpoint", folder_ / "ck"});
  const test::ChildResult made = consist(first);
  ASSERT_EQ(made.status, 0) << made.output;
  const test::ChildResult again = consist({"train", "--config", folder_ / "first.h5", "--archive", folder_ / "second.h5"});
  ASSERT_EQ(again.status, 0) << again.output;
  EXPECT_THAT(again.output, HasSubstr("not taken over is where that run wrote its results: --checkpoint"));
  const ArchiveReader a(folder_ / "first.h5"), b(folder_ / "second.h5");
  EXPECT_EQ(a.column("loss"), b.column("loss"));
  EXPECT_EQ(a.column("learning_rate"), b.column("learning_rate"));
  EXPECT_THAT(consist({"train", "--config", folder_ / "none.h5"}).output, HasSubstr("none.h5"));
}

TEST_F(Repeated, OptionsOfAPartThatTheCommandLineReplacesGoWithIt) {
  const std::string path = file("run.toml",
                                "model = 'llama-tiny'\nranks = 2\nstrategy = 'zero2'\noptimizer = 'lion'\n"
                                "[zero2]\nstage = 1\n[lion]\nbeta1 = 0.8\n");
  EXPECT_EQ(config_of(path).plugin_options.at("zero2").at("stage"), "1");
  const RunConfig c = config_of(path, {"--strategy", "ddp", "--optimizer", "adamw"});
  EXPECT_FALSE(c.plugin_options.contains("zero2"));
  EXPECT_FALSE(c.plugin_options.contains("lion"));
  EXPECT_THAT(c.notes, Contains(HasSubstr("what it says of 'zero2' has no effect beside the command line's choices")));
  // What the command line itself gives to a part that is not there stays, to be refused.
  EXPECT_TRUE(config_of(path, {"--strategy", "ddp", "--zero2.stage", "2"}).plugin_options.contains("zero2"));
  // A file that contradicts itself is refused as before.
  const std::string odd = file("odd.toml", "model = 'llama-tiny'\nstrategy = 'ddp'\n[zero2]\nstage = 1\n");
  EXPECT_TRUE(config_of(odd).plugin_options.contains("zero2"));
}

TEST_F(Repeated, AnArchiveCanBeCompared) {
  std::vector<std::string> first = small_;
  first.insert(first.end(), {"--ranks", "2", "--strategy", "zero2", "--zero2.stage", "1", "--archive", folder_ / "first.h5"});
  const test::ChildResult made = consist(first);
  ASSERT_EQ(made.status, 0) << made.output;
  const test::ChildResult same = consist({"compare", "--config", folder_ / "first.h5", "--predict", "--machine", "cpu"});
  EXPECT_EQ(same.status, 0) << same.output;
  const test::ChildResult other =
      consist({"compare", "--config", folder_ / "first.h5", "--strategy", "ddp,zero3-offload", "--predict", "--machine", "cpu"});
  EXPECT_EQ(other.status, 0) << other.output;
  EXPECT_THAT(other.output, HasSubstr("what it says of 'zero2' has no effect"));
}

TEST_F(Repeated, ThePrintedConfigurationIsThatOfTheRun) {
  std::vector<std::string> words = small_;
  words.push_back("--print-config");
  const test::ChildResult printed = consist(words);
  ASSERT_EQ(printed.status, 0) << printed.output;
  const RunConfig c = config_of(file("printed.toml", printed.output));
  words.pop_back();
  words.erase(words.begin());
  EXPECT_EQ(c.to_json(), make_config(parse_run(words), host()).to_json());
}

}  // namespace
}  // namespace consist
